import { expect, test } from 'vitest'
import { levelOf, logSearch, nextAfter, plain, savedLine } from './logSearch'

test('a URL that somebody changed by hand is taken as far as it makes sense', () => {
  expect(logSearch({ text: 17, rank: -1, level: 'loud', start: 'yes' })).toEqual({ text: '17' })
  expect(logSearch({ text: '', rank: 0, level: 'error', start: true })).toEqual({
    rank: 0,
    level: 'error',
    start: true,
  })
})

test('colours of a terminal and earlier states of a progress bar are left out', () => {
  expect(plain('\u001b[31mERROR\u001b[0m out of memory')).toBe('ERROR out of memory')
  expect(plain('10 %\r50 %\r100 %\r')).toBe('100 %')
})

test.each([
  ['2026-11-23 WARN slow', 'warning'],
  ['FATAL: gone', 'critical'],
  ['an information', undefined],
  [`${' '.repeat(100)}ERROR`, undefined],
])('level of %s', (text, level) => {
  expect(levelOf(text)).toBe(level)
})

test('where the next page begins', () => {
  expect(nextAfter('<?limit=9&after=17>; rel="next"')).toBe(17)
  expect(nextAfter('<?after=x>; rel="next"')).toBeUndefined()
  expect(nextAfter(null)).toBeUndefined()
})

test('a saved line says when, which trial, rank and stream', () => {
  const line = { trial_id: '3-7', rank: 1, stream: 'stderr', time_us: 1_700_000_000_123_456, text: 'a  b' }
  expect(savedLine(line)).toBe('2023-11-14T22:13:20.123Z 3-7 r1 stderr a  b')
})
