import { expect, test } from 'vitest'
import { phases, placesOf, type Run, resumedFrom, span, stepsOf } from './runs'

const run = (changed: Partial<Run>): Run => ({
  id: '1-1-1',
  slots: [{ agent_id: 'node', slot_ids: [0] }],
  state: 'released',
  reason: 'Free slots.',
  outcome: 'preempted',
  exit_code: 0,
  error: null,
  granted_us: 10e6,
  started_us: 12e6,
  leaving_us: 20e6,
  leaving_reason: 'Another is next.',
  exited_us: 22e6,
  released_us: 22e6,
  ...changed,
})

test('a run that was preempted starts, runs and leaves', () => {
  expect(phases(run({}), 0).map((phase) => [phase.kind, phase.from / 1e6, phase.until / 1e6])).toEqual([
    ['starting', 10, 12],
    ['running', 12, 20],
    ['leaving', 20, 22],
  ])
})

test('a run that goes on lasts until now', () => {
  const live = run({ leaving_us: null, exited_us: null, released_us: null })
  expect(phases(live, 30e6).at(-1)).toEqual({ kind: 'running', from: 12e6, until: 30e6 })
  expect(span([live], 30e6)).toEqual([10e6, 30e6])
})

test('a run that was told to leave before it had started never runs', () => {
  const kinds = phases(run({ started_us: null, leaving_us: 11e6 }), 0).map((phase) => phase.kind)
  expect(kinds).toEqual(['starting', 'leaving'])
})

test('a run that went on from a checkpoint names it, unless it was damaged', () => {
  const saved = { id: 'a', batches: 4, saved_us: 5e6 }
  const later = { id: 'b', batches: 8, saved_us: 6e6 }
  expect(resumedFrom(run({}), [later, saved])?.id).toBe('b')
  expect(resumedFrom(run({}), [{ ...later, damaged_us: 7e6 }, saved])?.id).toBe('a')
  expect(resumedFrom(run({}), [{ ...later, damaged_us: 11e6 }, saved])?.id).toBe('a')
  expect(resumedFrom(run({}), [{ ...later, damaged_us: 40e6 }, saved])?.id).toBe('b')
  expect(resumedFrom(run({ granted_us: 1e6 }), [saved, later])).toBeUndefined()
})

test('the steps of a run, in words', () => {
  const steps = stepsOf(run({ outcome: 'failed', exit_code: 1, error: 'model_def.py:3: ValueError' }), [])
  expect(steps.map((step) => [step.name, step.text])).toEqual([
    ['granted', 'node slot 0. Free slots.'],
    ['started', 'After 2 s.'],
    ['preempted', 'Another is next.'],
    ['ended', "The user's code failed (exit code 1): model_def.py:3: ValueError"],
  ])
})

test('places of a gang, and of a trial without slots', () => {
  expect(
    placesOf(
      run({
        slots: [
          { agent_id: 'a', slot_ids: [0, 1] },
          { agent_id: 'b', slot_ids: [] },
        ],
      }),
    ),
  ).toBe('a slots 0, 1; b')
})
