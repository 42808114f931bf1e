import { expect, test } from 'vitest'
import { lengthUnit, shownLength } from './lengths'

test.each([
  [{ searcher: { max_length: { batches: null, epochs: 16 } } }, 'epochs'],
  [{ searcher: { max_length: { batches: 100, epochs: null } } }, 'batches'],
  [{ searcher: { max_length: 100 } }, 'batches'],
  [{}, 'batches'],
  [null, 'batches'],
])('%j', (config, unit) => {
  expect(lengthUnit(config)).toBe(unit)
})

test.each([
  [1, 'epochs', '1 epoch'],
  [4, 'epochs', '4 epochs'],
  [1, 'batches', '1 batch'],
  [0, 'records', '0 records'],
])('%d %s', (length, unit, text) => {
  expect(shownLength(length, unit)).toBe(text)
})
