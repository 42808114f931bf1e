import { expect, test } from 'vitest'
import { heat } from './heatmap'

test('a cell has the mean of its trials, and the largest values are in the last cell', () => {
  const dots = [
    { x: 0, y: 0, good: 0 },
    { x: 0.1, y: 0.2, good: 1 },
    { x: 1, y: 1, good: 0.25 },
    { x: 0.5, y: 0.5, good: undefined },
  ]
  expect(heat(dots, 2, 2)).toEqual([
    { column: 0, row: 0, count: 2, mean: 0.5 },
    { column: 1, row: 1, count: 1, mean: 0.25 },
  ])
})
