import { expect, test } from 'vitest'
import { duration } from './time'

test.each([
  [0, '0 s'],
  [0.25, '0.3 s'],
  [9.96, '10 s'],
  [59, '59 s'],
  [60, '1 min'],
  [65, '1 min 5 s'],
  [3_600, '1 h'],
  [3_665, '1 h 1 min'],
  [90_061, '1 d 1 h'],
  [Number.NaN, '–'],
  [-1, '–'],
])('%d seconds', (seconds, text) => {
  expect(duration(seconds)).toBe(text)
})
