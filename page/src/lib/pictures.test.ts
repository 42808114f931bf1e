import { expect, test } from 'vitest'
import { type Answer, columnsFor, drawnCurves, drawnOf, followed } from './pictures'

const answer = (whole: boolean, ...curves: Answer['curves']): Answer => ({
  cursor: 'c',
  whole,
  metrics: whole ? ['loss'] : [],
  curves,
})
const piece = (trial_id: string, since: number, batches: number[], values: unknown[]) => ({
  trial_id,
  metric: 'loss',
  since,
  batches,
  values,
  time_us: batches.map((at) => at * 1e6),
})

test('an answer takes the place of what is known from its begin on, and leaves the other trials', () => {
  const first = followed(undefined, answer(true, piece('1-2', 0, [0, 5, 9], [1, 2, 3]), piece('1-1', 0, [4], [7])))
  const second = followed(first, answer(false, piece('1-2', 8, [8, 12], [30, 40])))
  expect(second.metrics).toEqual(['loss'])
  expect(drawnCurves(second, 'loss', 'batches')).toEqual({
    trials: ['1-1', '1-2'],
    x: [0, 4, 5, 8, 12],
    y: [
      [null, 7, null, null, null],
      [1, null, 2, 30, 40],
    ],
  })
  expect(drawnCurves(second, 'loss', 'time').x).toEqual([0, 5, 8, 12])
})

test('a whole answer forgets what was known, and what is no number is a gap', () => {
  const first = followed(undefined, answer(true, piece('1-2', 0, [0], [1])))
  const second = followed(first, answer(true, piece('1-1', 0, [0, 2], [5, 'NaN'])))
  expect(drawnCurves(second, 'loss', 'batches')).toEqual({ trials: ['1-1'], x: [0, 2], y: [[5, null]] })
  expect(drawnCurves(second, 'other', 'batches').trials).toEqual([])
})

test('an answer without anything new leaves all as it was, so that nothing is drawn again', () => {
  const first = followed(undefined, answer(true, piece('1-2', 0, [0], [1])))
  expect(followed(first, answer(false))).toBe(first)
})

test('the more curves there are, the fewer columns each has', () => {
  expect([1, 200, 201, 800, 100_000].map(columnsFor)).toEqual([1000, 1000, 500, 250, 125])
})

test('at an earlier moment each curve ends at what its trial had reached', () => {
  const found = followed(undefined, answer(true, piece('1-1', 0, [0, 5, 9], [1, 2, 3]), piece('1-2', 0, [4], [7])))
  const then = drawnCurves(found, 'loss', 'batches', new Map([['1-1', 5]]))
  expect(then).toEqual({ trials: ['1-1'], x: [0, 5], y: [[1, 2]] })
  expect(drawnCurves(found, 'loss', 'time', new Map([['1-1', 100]])).x).toEqual([0, 5, 9])
})

test('a picture of some trials says of how many', () => {
  expect([drawnOf(1000, 1234), drawnOf(7, 7)]).toEqual(['1,000 of 1,234 trials are drawn', '7 trials'])
})
