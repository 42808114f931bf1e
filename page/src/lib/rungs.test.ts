import { expect, test } from 'vitest'
import type { LogEvent } from './live'
import { promotions, rungsOf } from './rungs'

const decided = (position: number, type: string, trial_id: string, numbers: object, outcome?: string): LogEvent => ({
  position,
  type,
  time_us: 0,
  correlation_id: '1',
  data: { trial_id, reason: { rule: 'asha', numbers }, outcome },
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
  expect(promotions(rungsOf(LOG)).map(([from, to]) => [from.trial, from.rung, to.rung])).toEqual([['1-1', 0, 1]])
})

test('a search without rungs has none', () => {
  expect(
    rungsOf([
      decided(1, 'TrialStopped', '1-1', { metric: 0.5 }),
      decided(2, 'TrialPaused', '1-1', { rung: 0, metric: 'NaN' }),
    ]),
  ).toEqual([])
})
