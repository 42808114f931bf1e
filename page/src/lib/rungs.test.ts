import { expect, test } from 'vitest'
import type { LogEvent } from './outdatedQueries'
import { promotions, rungsOf } from './rungs'

const decided = (position: number, type: string, trial_id: string, numbers: object, outcome?: string): LogEvent => ({
  position,
  type,
  time_us: 0,
  correlation_id: '1',
  data: { trial_id, reason: { rule: outcome === 'failed' ? 'failed' : 'asha', numbers }, outcome },
  sentence: `${trial_id} ${type}`,
})

const LOG = [
  decided(1, 'TrialPaused', '1-1', { rung: 0, length: 1, unit: 'epochs', metric: 0.5, cut_off: null }),
  decided(2, 'TrialPaused', '1-2', { rung: 0, length: 1, unit: 'epochs', metric: 0.7, cut_off: 0.5 }),
  decided(3, 'TrialExtended', '1-1', { rung: 0, length: 1, unit: 'epochs', metric: 0.5, cut_off: 0.5 }),
  decided(4, 'TrialStopped', '1-1', { rung: 1, length: 4, unit: 'epochs', metric: 0.3 }, 'completed'),
  decided(5, 'TrialStopped', '1-2', { rung: 0, length: 1, unit: 'epochs', metric: 0.7, cut_off: 0.9 }, 'early_stopped'),
]

test('each trial stands once at each rung, with its newest fate', () => {
  const rungs = rungsOf(LOG)
  expect(rungs.map((rung) => [rung.length, rung.unit, rung.cutOff])).toEqual([
    [1, 'epochs', 0.5],
    [4, 'epochs', undefined],
  ])
  expect(rungs[0]?.dots.map((dot) => [dot.trial, dot.fate, dot.sentence])).toEqual([
    ['1-1', 'goes on', '1-1 TrialExtended'],
    ['1-2', 'stopped', '1-2 TrialStopped'],
  ])
  expect(rungs[1]?.dots.map((dot) => [dot.trial, dot.fate])).toEqual([['1-1', 'completed']])
})

test('an earlier position shows the rungs as they were', () => {
  const [rung, ...others] = rungsOf(LOG, 2)
  expect(others).toEqual([])
  expect(rung?.dots.map((dot) => dot.fate)).toEqual(['waits', 'waits'])
})

test('promotions join the dots of one trial', () => {
  expect(promotions(rungsOf(LOG)).map(([from, to]) => [from.trial, from.at, to.at])).toEqual([['1-1', '/0', '/1']])
})

test('a search without rungs has none', () => {
  expect(
    rungsOf([
      decided(1, 'TrialStopped', '1-1', { metric: 0.5 }),
      decided(2, 'TrialPaused', '1-1', { rung: 0, metric: 'NaN' }),
    ]),
  ).toEqual([])
})

test('rungs of several brackets with one number are columns of their own', () => {
  const at = (bracket: number | undefined, rung: number, length: number) => ({
    ...(bracket === undefined ? {} : { bracket }),
    rung,
    length,
    metric: length,
    cut_off: length,
  })
  const rungs = rungsOf([
    decided(1, 'TrialExtended', '1-3', at(1, 0, 4)),
    decided(2, 'TrialExtended', '1-1', at(0, 0, 1)),
    decided(3, 'TrialPaused', '1-1', at(0, 1, 4)),
    decided(4, 'TrialStopped', '1-3', at(1, 1, 16), 'completed'),
  ])
  expect(rungs.map((rung) => [rung.bracket, rung.length, rung.dots.length])).toEqual([
    [0, 1, 1],
    [0, 4, 1],
    [1, 4, 1],
    [1, 16, 1],
  ])
  expect(promotions(rungs).map(([from, to]) => [from.trial, from.at, to.at])).toEqual([
    ['1-1', '0/0', '0/1'],
    ['1-3', '1/0', '1/1'],
  ])
})

test('who is stopped while it waits no longer waits, and who trained on is left as it was', () => {
  const at = { rung: 0, length: 1, metric: 0.5, cut_off: 0.5 }
  const canceled = { rung: 1, length: 4 }
  const [rung, ...others] = rungsOf([
    decided(1, 'TrialPaused', '1-1', at),
    decided(2, 'TrialExtended', '1-2', at),
    decided(3, 'TrialStopped', '1-1', canceled, 'canceled'),
    decided(4, 'TrialStopped', '1-2', canceled, 'canceled'),
  ])
  expect(others).toEqual([])
  expect(rung?.dots.map((dot) => [dot.trial, dot.fate, dot.metric])).toEqual([
    ['1-1', 'stopped', 0.5],
    ['1-2', 'goes on', 0.5],
  ])
})

test('who has nothing to be compared by stands at its rung without a value', () => {
  const [rung] = rungsOf([
    decided(1, 'TrialStopped', '1-1', { rung: 0, length: 1, metric: null, rank: 1, of: 1 }, 'early_stopped'),
    decided(2, 'TrialStopped', '1-2', { rung: 0, length: 1, failures: 5, of: 2 }, 'failed'),
  ])
  expect(rung?.dots.map((dot) => [dot.trial, dot.fate, dot.metric])).toEqual([
    ['1-1', 'stopped', undefined],
    ['1-2', 'stopped', undefined],
  ])
})

test('trials that a class of the user decides about stand at the lengths that they were told to reach', () => {
  const rungs = rungsOf([
    decided(1, 'TrialPaused', '1-1', { metric: 0.5, metric_name: 'loss', length: 2 }),
    decided(2, 'TrialPaused', '1-2', { metric: 0.6, metric_name: 'loss', length: 2 }),
    decided(3, 'TrialExtended', '1-1', { searcher: 's.py:S', cause_position: 2, index: 0, length: 8 }),
    decided(4, 'TrialStopped', '1-2', { searcher: 's.py:S', cause_position: 2, index: 1 }, 'early_stopped'),
    decided(5, 'TrialStopped', '1-1', { metric: 0.2, metric_name: 'loss', length: 8 }, 'completed'),
  ])
  expect(rungs.map((rung) => [rung.length, rung.dots.map((dot) => [dot.trial, dot.fate, dot.metric])])).toEqual([
    [
      2,
      [
        ['1-1', 'goes on', 0.5],
        ['1-2', 'stopped', 0.6],
      ],
    ],
    [8, [['1-1', 'completed', 0.2]]],
  ])
})
