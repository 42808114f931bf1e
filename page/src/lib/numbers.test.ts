import { expect, test } from 'vitest'
import { drawable, shownBytes, shownNumber, shownValue, wholeValue } from './numbers'

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

test('a large whole number is shown with all digits and drawn as the nearest number', () => {
  expect(shownNumber(3733492680539598301n)).toBe('3733492680539598301')
  expect(shownValue([3733492680539598301n])).toBe('[3733492680539598301]')
  expect(drawable(2n ** 60n)).toBe(2 ** 60)
})

test('what is copied is what was recorded', () => {
  expect([0.30000000000000004, 123456789, 'relu', { a: 2n ** 60n }, null].map(wholeValue)).toEqual([
    '0.30000000000000004',
    '123456789',
    'relu',
    '{"a":1152921504606846976}',
    '',
  ])
})
