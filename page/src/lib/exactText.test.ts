import { expect, test } from 'vitest'
import { withWhole } from './exactText'

test('values are copied with all their digits, and what is between them stays', () => {
  const values = [
    { shown: '0.97', whole: '0.9712345678901234' },
    { shown: '0.97', whole: '0.9699999999999999' },
  ]
  expect(withWhole('trial 7\t0.97\t0.97\nend', values)).toBe('trial 7\t0.9712345678901234\t0.9699999999999999\nend')
  expect(withWhole('0.9', values)).toBe('0.9')
  expect(withWhole('plain', [])).toBe('plain')
})
