import { expect, test } from 'vitest'
import { line, lineageOf, placed } from './lineage'
import type { LogEvent } from './outdatedQueries'

const event = (position: number, type: string, data: Record<string, unknown>, sentence?: string): LogEvent => ({
  position,
  type,
  time_us: position,
  correlation_id: '1',
  data,
  ...(sentence === undefined ? {} : { sentence }),
})

const asked = (position: number, number: number, lr: number, parent?: number, generation?: number) =>
  event(
    position,
    'TrialRequested',
    {
      trial_id: `1-${number}`,
      trial_number: number,
      hyperparameters: { lr, net: { layers: 2 } },
      ...(parent === undefined ? {} : { parent_trial_id: `1-${parent}` }),
      reason: { rule: 'pbt.copy', numbers: generation === undefined ? {} : { generation, parent_metric: 0.5 } },
    },
    `trial ${number}`,
  )

const EVENTS = [
  asked(1, 1, 0.1),
  asked(2, 2, 0.2),
  asked(3, 3, 0.3),
  event(4, 'TrialStopped', { trial_id: '1-3', outcome: 'early_stopped' }, 'it was among the worst'),
  asked(5, 4, 0.12, 1, 0),
  asked(6, 5, 0.08, 1, 1),
  asked(7, 6, 0.1, 4, 1),
]

test('copies know whom they come from, when, and what they changed', () => {
  const copies = lineageOf(EVENTS)
  expect(copies.map((copy) => [copy.trial, copy.parent, copy.generation])).toEqual([
    ['1-1', undefined, 0],
    ['1-2', undefined, 0],
    ['1-3', undefined, 0],
    ['1-4', '1-1', 1],
    ['1-5', '1-1', 2],
    ['1-6', '1-4', 2],
  ])
  expect(copies[3]).toMatchObject({
    parentMetric: 0.5,
    changed: [{ name: 'lr', from: '0.1', to: '0.12' }],
    stopped: undefined,
  })
  expect(copies[2]).toMatchObject({ stopped: 'early_stopped', sentences: ['trial 3', 'it was among the worst'] })
})

test('an earlier moment has no later copies', () => {
  expect(lineageOf(EVENTS, 3).map((copy) => copy.stopped)).toEqual([undefined, undefined, undefined])
  expect(lineageOf(EVENTS, 5)).toHaveLength(4)
  expect(lineageOf([asked(9, 7, 0.1, 99, 3)])).toMatchObject([{ parent: '1-99', generation: 0, changed: [] }])
})

test('the first copy goes on in the row of its parent, and no row is used twice in a column', () => {
  const rows = placed(lineageOf(EVENTS))
  const rowOf = Object.fromEntries(rows.map(({ copy, row }) => [copy.trial, row]))
  expect(rowOf['1-4']).toBe(rowOf['1-1'])
  expect(rowOf['1-6']).toBe(rowOf['1-1'])
  const places = rows.map(({ copy, row }) => `${copy.generation}/${row}`)
  expect(new Set(places).size).toBe(places.length)
})

test('a trial is picked out with its ancestors and descendants', () => {
  expect([...line(lineageOf(EVENTS), '1-4')].sort()).toEqual(['1-1', '1-4', '1-6'])
  expect([...line(lineageOf(EVENTS), '1-1')].sort()).toEqual(['1-1', '1-4', '1-5', '1-6'])
  expect(line(lineageOf(EVENTS), 'none').size).toBe(0)
})
