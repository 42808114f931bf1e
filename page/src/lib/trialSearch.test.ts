import { expect, test } from 'vitest'
import { experimentOf, trialSearch, zoomIn } from './trialSearch'

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

test('pictures are zoomed along the same batches, and one of them along its metric', () => {
  const search = trialSearch({ zoom: [1, 5, 0.1, 0.2], zoomed: 'loss' })
  expect(zoomIn(search, 'loss')).toEqual([1, 5, 0.1, 0.2])
  expect(zoomIn(search, 'accuracy')).toEqual([1, 5, null, null])
  expect(zoomIn({ ...search, zoom: [null, null, 1, 2] }, 'accuracy')).toBeUndefined()
  expect(zoomIn({}, 'loss')).toBeUndefined()
})
