import { expect, test } from 'vitest'
import { curveStyle } from './curveStyles'
import { pointsOf, valuesAt } from './curveValues'

const curves = {
  trials: ['1-1', '1-2', '1-3', '1-4'],
  x: [1, 2, 3],
  y: [
    [0.1, null, 0.3],
    [null, 0.5, 0.6],
    [0.9, null, null],
    [0.2, 0.4, 0.2],
  ],
}

const points = pointsOf(curves)

test('values are from top to bottom; a gap has the value before it, and an ended curve none', () => {
  expect(valuesAt(curves, points, 1, 0.4, 9)).toEqual({
    shown: [
      { trial: '1-2', index: 1, value: 0.5 },
      { trial: '1-4', index: 3, value: 0.4 },
      { trial: '1-1', index: 0, value: 0.1 },
    ],
    more: 0,
  })
  expect(valuesAt(curves, points, 0, 0, 9).shown.map((one) => one.trial)).toEqual(['1-3', '1-4', '1-1'])
})

test('of many the nearest to the pointer are shown, and the others counted', () => {
  const { shown, more } = valuesAt(curves, points, 1, 0.45, 2)
  expect(shown.map((one) => one.trial)).toEqual(['1-2', '1-4'])
  expect(more).toBe(1)
})

test('a sparse curve beside a dense one keeps its value between its points', () => {
  const x = Array.from({ length: 10_001 }, (_, at) => at)
  const sparse = x.map((at) => (at % 5_000 === 0 ? at : null))
  const both = { trials: ['1-1', '1-2'], x, y: [x, sparse] }
  const { shown } = valuesAt(both, pointsOf(both), 4_999, 0, 9)
  expect(shown).toEqual([
    { trial: '1-1', index: 0, value: 4_999 },
    { trial: '1-2', index: 1, value: 0 },
  ])
})

test('no two of 28 curves look the same', () => {
  const looks = Array.from({ length: 28 }, (_, index) => JSON.stringify(curveStyle(index)))
  expect(new Set(looks).size).toBe(28)
})
