import { expect, test } from 'vitest'
import { dropIndex, moveTo, priorityOf, queueSearch, reasonOf } from './queue'

test('a row moves up ahead of the one there, and down behind the one there', () => {
  expect(moveTo([4, 5, 6], 2, 0)).toEqual({ ahead_of: 4 })
  expect(moveTo([4, 5, 6], 0, 1)).toEqual({ behind: 5 })
  expect(moveTo([4, 5, 6], 1, 1)).toBeUndefined()
  expect(moveTo([4, 5, 6], 0, -1)).toBeUndefined()
  expect(moveTo([4, 5, 6], 2, 3)).toBeUndefined()
})

test.each([
  [0, 2, false, 1],
  [0, 2, true, 2],
  [2, 0, false, 0],
  [2, 0, true, 1],
  [1, 1, false, 1],
  [1, 1, true, 1],
  [1, 2, false, 1],
])('dropping row %d on row %d (lower half: %s) makes it row %d', (from, over, lower, to) => {
  expect(dropIndex(from, over, lower)).toBe(to)
})

test('a reason is followed by when the trial is expected to start', () => {
  expect(reasonOf({ text: 'No slot is free.' })).toBe('No slot is free.')
  expect(reasonOf({ text: 'No slot is free.', expected_us: 0 })).toMatch(/^No slot is free; expected 19(69|70)-/)
  expect(reasonOf({ text: '', expected_us: 5 })).toBe('')
})

test('priorities are whole numbers from 1 to 99', () => {
  expect([1, '42', 99, 0, 100, 1.5, '', 'x'].map(priorityOf)).toEqual([
    1,
    42,
    99,
    undefined,
    undefined,
    undefined,
    undefined,
    undefined,
  ])
  expect(queueSearch({ pool: 'default', other: 1 })).toEqual({ pool: 'default' })
  expect(queueSearch({ pool: 5 })).toEqual({})
  expect(queueSearch({ policy: 'fifo', agents: 'x' })).toEqual({ policy: 'fifo' })
  expect(queueSearch({ at: 12 })).toEqual({ at: 12 })
  expect(['12', 0, -1, 1.5, null].map((at) => queueSearch({ at }))).toEqual([{}, {}, {}, {}, {}])
})
