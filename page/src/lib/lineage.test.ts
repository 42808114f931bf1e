import { expect, test } from 'vitest'
import type { LineageView } from '../api/openapi'
import { copiesOf, line, placed } from './lineage'

const copy = (number: number, generation: number, parent?: number): LineageView['trials'][number] => ({
  trial_id: `1-${number}`,
  number,
  parent_id: parent === undefined ? null : `1-${parent}`,
  generation,
  parent_metric: null,
  source_checkpoint_id: null,
  hyperparameters: {},
  outcome: null,
  changed: parent === undefined ? [] : [{ name: 'lr', before: 0.1, after: null }],
  sentences: [],
  position: number,
  time_us: number,
})
const COPIES = copiesOf({
  trials: [copy(1, 0), copy(2, 0), copy(3, 0), copy(4, 1, 1), copy(5, 2, 1), copy(6, 2, 4)],
})

test('values that were changed are told as they were recorded', () => {
  expect(COPIES[3]).toMatchObject({
    parent: '1-1',
    changed: [{ name: 'lr', from: '0.1', to: '–' }],
    stopped: undefined,
  })
})

test('the first copy goes on in the row of its parent, and no row is used twice in a column', () => {
  const rows = placed(COPIES)
  const rowOf = Object.fromEntries(rows.map(({ copy, row }) => [copy.trial, row]))
  expect(rowOf['1-4']).toBe(rowOf['1-1'])
  expect(rowOf['1-6']).toBe(rowOf['1-1'])
  const places = rows.map(({ copy, row }) => `${copy.generation}/${row}`)
  expect(new Set(places).size).toBe(places.length)
})

test('a trial is picked out with its ancestors and descendants', () => {
  expect([...line(COPIES, '1-4')].sort()).toEqual(['1-1', '1-4', '1-6'])
  expect([...line(COPIES, '1-1')].sort()).toEqual(['1-1', '1-4', '1-5', '1-6'])
  expect(line(COPIES, 'none').size).toBe(0)
})
