import { expect, test } from 'vitest'
import { drawable, shownBytes, shownNumber, shownValue } from './numbers'

test.each([
  [0, '0'],
  [3, '3'],
  [0.1 + 0.2, '0.3'],
  [0.000012345, '1.234e-5'],
  [123456789, '1.235e+8'],
  [-0.5, '-0.5'],
  ['NaN', 'NaN'],
  [null, '–'],
])('a number %s', (value, text) => {
  expect(shownNumber(value)).toBe(text)
})

test('a value of any kind fits on one line', () => {
  expect(shownValue({ type: 'log', minval: -5 })).toBe('{"type":"log","minval":-5}')
  expect(shownValue('relu')).toBe('relu')
  expect(shownValue(true)).toBe('true')
})

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1000, '1.00 KB'],
  [999_499, '999 KB'],
  [999_500, '1.00 MB'],
  [2_500_000_000, '2.50 GB'],
])('%d bytes', (bytes, text) => {
  expect(shownBytes(bytes)).toBe(text)
})

test('what is no finite number is not drawn', () => {
  expect([1, 'NaN', 'Infinity', null, undefined].map(drawable)).toEqual([1, undefined, undefined, undefined, undefined])
})
