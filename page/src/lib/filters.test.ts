import { expect, test } from 'vitest'
import { asked, columnsWithout, compared, fits, type ListSearch, listSearch, shownWithout } from './filters'

const item = {
  id: 12,
  name: 'Digits ASHA',
  state: 'active',
  user: 'olga',
  workspace: 'vision',
  labels: ['nightly'],
  method: 'asha',
  submitted_us: 1,
}

test.each<[ListSearch, boolean]>([
  [{}, true],
  [{ text: 'digits nightly' }, true],
  [{ text: 'digits weekly' }, false],
  [{ text: '12' }, true],
  [{ state: 'paused' }, false],
  [{ user: 'olga', state: 'active' }, true],
  [{ label: 'nightly', method: 'asha' }, true],
  [{ label: 'weekly' }, false],
  [{ workspace: 'vision' }, true],
  [{ workspace: 'default' }, false],
  [{ method: 'random' }, false],
])('%j', (search, shown) => {
  expect(fits(item, search)).toBe(shown)
})

test('a URL that somebody changed by hand is taken as far as it makes sense', () => {
  expect(listSearch({ text: 12, state: ['x'], by: 'id', down: 'yes', other: 1, time: 'year', limit: 1e6 })).toEqual({
    text: '12',
    by: 'id',
  })
})

test('what the gateway filters by', () => {
  expect(asked({ time: 'day', label: 'nightly', text: 'x' }, 86_461e6)).toMatchObject({
    label: 'nightly',
    text: 'x',
    submitted_after_us: 60e6,
    limit: 200,
  })
  expect(asked({}, 5)).toMatchObject({ submitted_after_us: undefined, sort: 'id', order: 'desc' })
  expect(asked({ workspace: 'vision', method: 'asha', by: 'best', down: false }, 5)).toMatchObject({
    method: 'asha',
    workspace: 'vision',
    sort: 'metric',
    order: 'asc',
  })
  expect(asked({ by: 'priority', down: false }, 5)).toMatchObject({ sort: 'id', order: 'desc' })
})

test('what has no value comes last, whichever way', () => {
  const values = [3, null, 1, undefined, 2]
  expect([...values].sort((a, b) => compared(a, b, false)).slice(0, 3)).toEqual([1, 2, 3])
  expect([...values].sort((a, b) => compared(a, b, true)).slice(0, 3)).toEqual([3, 2, 1])
})

test('columns that few look at are left out until somebody chooses', () => {
  expect(columnsWithout({})).toEqual(['workspace', 'pool', 'priority'])
  expect(columnsWithout(listSearch({ without: shownWithout([]) }))).toEqual([])
  expect(columnsWithout(listSearch({ without: shownWithout(['user', 'pool']) }))).toEqual(['user', 'pool'])
})

test('numbers of any size are ordered by what they are', () => {
  const values = [9223372036854775807n, 3, 9223372036854775806n]
  expect([...values].sort((a, b) => compared(a, b, false))).toEqual([3, 9223372036854775806n, 9223372036854775807n])
})
