import { expect, test } from 'vitest'
import { changesOf, slotThen } from './agents'

const labels = (...slots: [boolean, string | null][]) =>
  changesOf({ slots: slots.map(([enabled, allocation_id]) => ({ enabled, allocation_id })) }).map((item) => item.label)

test('what is in service can be taken out of it, and back', () => {
  expect(labels([true, null])).toEqual(['Drain', 'Disable'])
  expect(labels([false, null])).toEqual(['Enable'])
  expect(labels([true, 'x'], [false, null])).toEqual(['Enable', 'Drain', 'Disable'])
})

test('what drains can still be told to leave at once', () => {
  expect(labels([false, 'x'])).toEqual(['Enable', 'Disable'])
})

test('a slot of an earlier moment tells who held it, as far as one may know', () => {
  expect(slotThen({ enabled: true, allocation_id: '7-2-1' }, false)).toEqual({ text: 'trial 7-2', experiment: 7 })
  expect(slotThen({ enabled: false, allocation_id: '7-2-1' }, false).text).toBe('trial 7-2 (disabled)')
  expect(slotThen({ enabled: true, allocation_id: 'hidden' }, false)).toEqual({ text: 'taken', experiment: undefined })
  expect(slotThen({ enabled: true, allocation_id: null }, false).text).toBe('free')
  expect(slotThen({ enabled: true, allocation_id: null }, true).text).toBe('gone')
  expect(slotThen({ enabled: false }, false).text).toBe('disabled')
})
