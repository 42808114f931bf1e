import { expect, test } from 'vitest'
import { frontOf } from './paretoFront'

const point = (trial_id: string, loss: unknown, size: unknown) => ({
  trial_id,
  length: 1,
  batches: 1,
  time_us: 0,
  metrics: { loss, size },
})

test('on the front are those that no other one beats in both metrics', () => {
  const points = [point('1-1', 1, 9), point('1-2', 2, 5), point('1-3', 3, 7), point('1-4', 2, 5), point('1-5', 4, 1)]
  const goals = [
    { metric: 'loss', smaller: true },
    { metric: 'size', smaller: true },
  ] as const
  const front = frontOf(points, ...goals).filter((one) => one.onFront)
  expect(front.map((one) => one.trial)).toEqual(['1-1', '1-2', '1-4', '1-5'])
})

test('a larger value may be better; the last validation of a trial counts, and what cannot be drawn does not', () => {
  const points = [point('1-1', 1, 1), point('1-1', 3, 3), point('1-2', 2, 'NaN'), point('1-3', 2, 2)]
  const found = frontOf(points, { metric: 'loss', smaller: false }, { metric: 'size', smaller: false })
  expect(found.map((one) => [one.trial, one.x, one.onFront])).toEqual([
    ['1-1', 3, true],
    ['1-3', 2, false],
  ])
})
