import { expect, test } from 'vitest'
import { byNumber, curvesOf, metricNames, type Point, smoothed } from './curves'

const point = (trial_id: string, length: number, loss: unknown, time_us = length * 1e6): Point => ({
  trial_id,
  length,
  batches: length * 10,
  time_us,
  metrics: { loss },
})

test('curves share their x, and have gaps where a trial has no point', () => {
  const curves = curvesOf([point('1-2', 1, 0.5), point('1-10', 2, 0.4), point('1-2', 4, 0.3)], 'loss', 'length')
  expect(curves).toEqual({
    trials: ['1-2', '1-10'],
    x: [1, 2, 4],
    y: [
      [0.5, null, 0.3],
      [null, 0.4, null],
    ],
  })
})

test('the newest measurement at an x stands, and what is no number is left out', () => {
  const curves = curvesOf([point('1-1', 1, 0.5), point('1-1', 1, 0.4), point('1-1', 2, 'NaN')], 'loss', 'batches')
  expect(curves).toEqual({ trials: ['1-1'], x: [10], y: [[0.4]] })
})

test('time counts from the first point of each trial', () => {
  const curves = curvesOf([point('1-1', 1, 1, 5e6), point('1-1', 2, 2, 8e6), point('1-2', 1, 3, 100e6)], 'loss', 'time')
  expect(curves.x).toEqual([0, 3])
  expect(curves.y).toEqual([
    [1, 2],
    [3, null],
  ])
})

test('names of metrics are those of all points', () => {
  const other = { ...point('1-1', 1, 1), metrics: { accuracy: 1 } }
  expect(metricNames([point('1-1', 1, 1), other])).toEqual(['loss', 'accuracy'])
})

test('smoothing keeps a constant, gaps, and the first value', () => {
  expect(smoothed([2, null, 2, 2], 0.9).map((value) => value && Number(value.toFixed(9)))).toEqual([2, null, 2, 2])
  expect(smoothed([1, 3], 0)).toEqual([1, 3])
  const [first, second] = smoothed([0, 1], 0.5)
  expect(first).toBe(0)
  expect(second).toBeCloseTo(2 / 3)
})

test('trials are ordered by number', () => {
  expect(['2-1', '1-10', '1-9'].sort(byNumber)).toEqual(['1-9', '1-10', '2-1'])
})
