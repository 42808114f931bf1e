import { expect, test } from 'vitest'
import { BULK, takes } from './bulk'

test.each([
  [{ state: 'active' }, ['pause', 'cancel']],
  [{ state: 'paused' }, ['resume', 'cancel']],
  [{ state: 'canceling' }, []],
  [{ state: 'completed' }, ['archive']],
  [{ state: 'completed', archived: true }, ['unarchive']],
])('%j takes %j', (item, actions) => {
  expect(BULK.filter((action) => takes(item, action))).toEqual(actions)
})
