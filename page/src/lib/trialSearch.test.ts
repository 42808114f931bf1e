import { expect, test } from 'vitest'
import { experimentOf, trialSearch } from './trialSearch'

test('a URL that somebody changed by hand is taken as far as it makes sense', () => {
  expect(trialSearch({ tab: 'logs', x: 'length', smooth: 2, log: 1, level: 'info', rank: 3, checkpoint: '' })).toEqual({
    tab: 'logs',
    level: 'info',
    rank: 3,
  })
})

test('the experiment of a trial', () => {
  expect(experimentOf('12-3')).toBe(12)
  for (const wrong of ['12', '0-1', '1-0', 'a-1', '1-2-3', '']) expect(experimentOf(wrong)).toBeUndefined()
})
