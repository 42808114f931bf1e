import { expect, test } from 'vitest'
import { EVENT_TYPES } from '../api/eventTypes'
import { FOLLOWED } from './outdatedQueries'
import { QUEUE_TYPES } from './queue'
import { SLOT_TYPES } from './slots'

test('every event that the page names is in the published schema', () => {
  const known: ReadonlySet<string> = new Set(EVENT_TYPES)
  const named = [...FOLLOWED, ...QUEUE_TYPES, ...SLOT_TYPES]
  expect(named.filter((type) => !known.has(type))).toEqual([])
})
