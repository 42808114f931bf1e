import { describe, expect, test } from 'vitest'
import type { EventType } from '../api/eventTypes'
import type { LogEvent } from './outdatedQueries'
import { moved, SLOT_TYPES, slotsPicture, startOf, useOf, withHeld, zoomed } from './slots'

let position = 0
const event = (type: EventType, time_us: number, data: Record<string, unknown>): LogEvent => {
  position += 1
  return { position, type, time_us, correlation_id: '', data }
}
const joined = (agent_id: string, time: number, slots: number) =>
  event('AgentJoined', time, { agent_id, slots: Array.from({ length: slots }, (_, slot_id) => ({ slot_id })) })
const granted = (allocation_id: string, time: number, agent_id: string, ...slot_ids: number[]) =>
  event('AllocationGranted', time, {
    allocation_id,
    trial_id: '1-1',
    experiment_id: 1,
    slots: [{ agent_id, slot_ids }],
  })
const released = (allocation_id: string, time: number) => event('AllocationReleased', time, { allocation_id })

describe('the picture of slots', () => {
  test('a grant begins a bar on each slot, its release ends them', () => {
    const events = [joined('a2', 0, 1), joined('a10', 0, 2), granted('x', 10, 'a10', 0, 1), released('x', 30)]
    const picture = slotsPicture(events)
    expect(picture.rows.map((row) => `${row.agent}/${row.slot}`)).toEqual(['a2/0', 'a10/0', 'a10/1'])
    expect(picture.bars.map((bar) => [bar.slot, bar.from, bar.until])).toEqual([
      [0, 10, 30],
      [1, 10, 30],
    ])
    const earlier = slotsPicture(events, events[2]?.position)
    expect(earlier.bars.map((bar) => bar.until)).toEqual([undefined, undefined])
    expect(useOf(picture, 10, 30)).toBeCloseTo(2 / 3)
    expect(startOf(picture)).toBe(10)
  })

  test('slots that were closed, and those of a lost agent, are out of service', () => {
    const picture = slotsPicture([
      joined('a', 0, 2),
      event('SlotsClosed', 10, { agent_id: 'a', slot_id: 1, drain: false }),
      event('AgentLost', 20, { agent_id: 'a', reason: 'silent' }),
      joined('a', 30, 2),
      event('SlotsOpened', 40, { agent_id: 'a', slot_id: null }),
      event('SlotsClosed', 50, { agent_id: 'a', slot_id: null, drain: true }),
    ])
    expect(picture.outages.map(({ slot, why, from, until }) => [slot, why, from, until])).toEqual([
      [1, 'closed', 10, 20],
      [0, 'gone', 20, 30],
      [1, 'gone', 20, 30],
      [1, 'closed', 30, 40],
      [0, 'closed', 50, undefined],
      [1, 'closed', 50, undefined],
    ])
  })

  test('what users changed is marked, and who was told to leave', () => {
    const picture = slotsPicture([
      event('PoolPolicyChanged', 1, { pool: 'default', policy: 'fair_share' }),
      event('ShareChanged', 2, { owner: 'user', name: 'ada', weight: 2, max_slots: 3 }),
      event('ExperimentSlotLimitChanged', 3, { experiment_id: 4, max_slots: null }),
      event('AllocationPreempted', 4, { allocation_id: 'x' }),
    ])
    expect(picture.changed.map((change) => change.text)).toEqual([
      'pool default: fair_share',
      'user ada: weight 2, at most 3 slots',
      'experiment 4: no limit',
    ])
    expect(picture.told).toEqual([{ time: 4, allocation: 'x' }])
    expect(useOf(picture, 0, 10)).toBeUndefined()
    expect(SLOT_TYPES).toContain('AllocationResized')
  })
})

test('what was granted before the events that are known is drawn, too', () => {
  const picture = slotsPicture([joined('a', 50, 1), granted('x', 60, 'a', 0)])
  const slots = [{ agent_id: 'b', slot_ids: [3] }]
  const held = { id: 'y', trial_id: '2-1', experiment_id: 2, granted_us: 10, slots }
  const all = withHeld(picture, [held, { ...held, id: 'x' }])
  expect(all.bars.map((bar) => [bar.allocation, bar.agent, bar.slot, bar.from])).toEqual([
    ['y', 'b', 3, 10],
    ['x', 'a', 0, 60],
  ])
  expect(all.rows.map((row) => row.agent)).toEqual(['a', 'b'])
  expect(withHeld(picture, [])).toBe(picture)
})

test('zoom stays within what there is', () => {
  const whole = { from: 0, until: 100_000_000 }
  expect(zoomed(whole, whole, 0.5)).toEqual({ from: 25_000_000, until: 75_000_000 })
  expect(zoomed(whole, whole, 0.5, 0)).toEqual({ from: 0, until: 50_000_000 })
  expect(zoomed({ from: 0, until: 50_000_000 }, whole, 4)).toBeUndefined()
  expect(moved({ from: 50_000_000, until: 90_000_000 }, whole, 1)).toEqual({ from: 60_000_000, until: 100_000_000 })
})
