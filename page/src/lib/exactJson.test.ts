import { expect, test } from 'vitest'
import { parseExact, shownJson } from './exactJson'

test('large whole numbers keep their digits, and texts and fractions are what they were', () => {
  const text =
    '{"seed":3733492680539598301,"a":-12345678901234567890,"text":"1234567890123456789","x":0.1234567890123456789,"y":7,"q":"\\"1"}'
  const shown = shownJson(parseExact(text))
  expect(shown).toContain('"seed": 3733492680539598301,')
  expect(shown).toContain('"a": -12345678901234567890,')
  expect(shown).toContain('"text": "1234567890123456789"')
  expect(shown).toContain('"x": 0.12345678901234568,')
  expect(shown).toContain('"y": 7')
})
