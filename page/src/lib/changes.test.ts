import { expect, test } from 'vitest'
import { changes } from './changes'

const BEFORE = { priority: 50, weight: 1, max_slots: 4, max_wall_hours: 8, max_trials: 8, max_concurrent_trials: null }

test('only what differs is sent; an empty limit of slots or of time takes it away', () => {
  expect(changes(BEFORE, BEFORE)).toEqual({})
  expect(changes(BEFORE, { ...BEFORE, priority: 40, max_slots: null, max_trials: null })).toEqual({
    priority: 40,
    max_slots: null,
  })
  expect(changes(BEFORE, { ...BEFORE, max_wall_hours: 12.5 })).toEqual({ max_wall_hours: 12.5 })
  expect(changes(BEFORE, { ...BEFORE, max_wall_hours: null })).toEqual({ max_wall_hours: null })
})
