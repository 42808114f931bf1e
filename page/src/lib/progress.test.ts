import { expect, test } from 'vitest'
import { progressOf } from './progress'

const active = { state: 'active', submitted_us: 0, ended_us: null, max_trials: 4 }
const trial = (state: string, length: number) => ({ state, length, target_length: 10 })

test('trials that ended count whole, those that run by their length', () => {
  const trials = [trial('completed', 10), trial('early_stopped', 1), trial('running', 5)]
  expect(progressOf(active, trials, 50e6)).toEqual({ part: 0.625, ended: 2, all: 4, leftSeconds: 30 })
})

test('no guess before something is done, while it is paused, and at the end', () => {
  expect(progressOf(active, [trial('running', 1)], 9e6).leftSeconds).toBeUndefined()
  expect(progressOf({ ...active, state: 'paused' }, [trial('paused', 9)], 9e6).leftSeconds).toBeUndefined()
  expect(progressOf({ ...active, state: 'failed', ended_us: 5e6 }, [], 9e6)).toMatchObject({
    part: 1,
    leftSeconds: undefined,
  })
  expect(progressOf({ ...active, max_trials: null }, [], 9e6).part).toBe(0)
})
