import { expect, test } from 'vitest'
import { compared, fits, listSearch } from './filters'

const item = {
  id: 12,
  name: 'Digits ASHA',
  state: 'active',
  user: 'olga',
  labels: ['nightly'],
  method: 'asha',
  submitted_us: 1,
}

test.each([
  [{}, true],
  [{ text: 'digits nightly' }, true],
  [{ text: 'digits weekly' }, false],
  [{ text: '12' }, true],
  [{ state: 'paused' }, false],
  [{ user: 'olga', state: 'active' }, true],
])('%j', (search, shown) => {
  expect(fits(item, search)).toBe(shown)
})

test('a URL that somebody changed by hand is taken as far as it makes sense', () => {
  expect(listSearch({ text: 12, state: ['x'], by: 'id', down: 'yes', other: 1 })).toEqual({ text: '12', by: 'id' })
})

test('what has no value comes last, whichever way', () => {
  const values = [3, null, 1, undefined, 2]
  expect([...values].sort((a, b) => compared(a, b, false)).slice(0, 3)).toEqual([1, 2, 3])
  expect([...values].sort((a, b) => compared(a, b, true)).slice(0, 3)).toEqual([3, 2, 1])
})
