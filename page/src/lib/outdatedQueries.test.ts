import { expect, test } from 'vitest'
import {
  AT_REST,
  BEHIND_MS,
  FOLLOWED,
  isBehind,
  outdated,
  REFRESH_MS,
  refreshed,
  SETTLE_MS,
  settled,
} from './outdatedQueries'

test('a validation makes the curves, trials and lists of its experiment out of date, and nothing of another', () => {
  expect(outdated({ type: 'ValidationReported', correlation_id: '7' })).toEqual([
    ['experiment', 7],
    ['trials', 7],
    ['validations', 7],
    ['experiments'],
  ])
})

test('an agent is no experiment', () => {
  expect(outdated({ type: 'AgentJoined', correlation_id: 'node-1' })).toEqual([
    ['agents'],
    ['allocations'],
    ['slots'],
    ['nodes'],
  ])
})

test('each followed type makes something out of date', () => {
  for (const type of FOLLOWED) expect(outdated({ type, correlation_id: '1' })).not.toEqual([])
})

test('a change is shown at once, many of them every two seconds, and one after a rest at once again', () => {
  let pace = AT_REST
  const shown: number[] = []
  for (let now = 0; now < 20_000; now += REFRESH_MS) {
    const busy = now < 12_000 || now === 18_000
    const due = refreshed(pace, now, busy)
    pace = due.pace
    if (due.now) shown.push(now)
  }
  expect(shown).toEqual([0, 400, 1_200, 2_800, 4_800, 6_800, 8_800, 10_800, 18_000])
})

test('who has not shown for long what happened says so', () => {
  expect(isBehind([], 1e9)).toBe(false)
  expect(isBehind([1_000, 900], 1_000 + BEHIND_MS)).toBe(true)
  expect(isBehind([1_000], 1_000 + BEHIND_MS)).toBe(false)
})

test('what has not changed for a while is asked for once more', () => {
  const changed = new Map([
    ['experiment/1', 1_000],
    ['trials/1', 1_001],
  ])
  expect(settled(changed, 1_000 + SETTLE_MS - 1)).toEqual([])
  expect(settled(changed, 1_000 + SETTLE_MS)).toEqual(['experiment/1'])
})
