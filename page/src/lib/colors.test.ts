import { expect, test } from 'vitest'
import { scaleColor } from './colors'

test('what is good stands out on either ground', () => {
  expect(scaleColor(1, true)).toBe('rgb(254, 232, 56)')
  expect(scaleColor(1, false)).toBe('rgb(0, 34, 78)')
  expect(scaleColor(7, true)).toBe(scaleColor(1, true))
  expect(scaleColor(0, false)).not.toBe(scaleColor(0.5, false))
})
