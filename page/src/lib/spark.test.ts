import { expect, test } from 'vitest'
import { sparkPath } from './spark'

test('a curve fills its picture', () => {
  expect(sparkPath([1, 2, 3], [0, 10, 5], 24, 14)).toBe('M2 12L12 2L22 7')
})

test('one point, equal values, none', () => {
  expect(sparkPath([1], [3], 24, 14)).toBe('M2 7H22')
  expect(sparkPath([1, 2], [3, 3], 24, 14)).toBe('M2 7L22 7')
  expect(sparkPath([1], [Number.NaN], 24, 14)).toBe('')
})
