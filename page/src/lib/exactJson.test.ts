import { expect, test } from 'vitest'
import { exactText, numeric, parseExact, shownJson } from './exactJson'

const TEXT =
  '{"seed":3733492680539598301,"a":-12345678901234567890,"text":"1234567890123456789","x":0.1234567890123456789,"y":7,"q":"\\"1"}'

test('large whole numbers keep their digits, and texts and fractions are what they were', () => {
  const shown = shownJson(parseExact(TEXT))
  expect(shown).toContain('"seed": 3733492680539598301,')
  expect(shown).toContain('"a": -12345678901234567890,')
  expect(shown).toContain('"text": "1234567890123456789"')
  expect(shown).toContain('"x": 0.12345678901234568,')
  expect(shown).toContain('"y": 7')
})

test('only what a number cannot hold is a bigint: times are numbers', () => {
  const text =
    '[9007199254740991,9007199254740992,9007199254740993,1764312345678901,9223372036854775807,1e20,-9007199254740993]'
  expect(parseExact(text)).toEqual([
    9007199254740991,
    9007199254740992n,
    9007199254740993n,
    1764312345678901,
    9223372036854775807n,
    1e20,
    -9007199254740993n,
  ])
})

test('two seeds that one number stands for are two', () => {
  const [a, b] = parseExact('[9223372036854775807,9223372036854775806]') as [unknown, unknown]
  expect(a === b).toBe(false)
  expect(exactText(a)).not.toBe(exactText(b))
})

test('what is sent has all digits again', () => {
  expect(exactText(parseExact(TEXT))).toBe(TEXT.replace('0.1234567890123456789', '0.12345678901234568'))
  expect(exactText(undefined)).toBe('null')
})

test('what computes gets a number', () => {
  expect([numeric(2n ** 60n), numeric(0.5), numeric('7'), numeric(null)]).toEqual([2 ** 60, 0.5, undefined, undefined])
})
