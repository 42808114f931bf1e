import { expect, test } from 'vitest'
import { courseOf, FIGURES, inWords, waitsByUser, whatIf } from './whatIf'

test('what is asked for stands in the URL; nothing is asked for where nothing would differ', () => {
  expect(whatIf({})).toBeUndefined()
  expect(whatIf({ policy: 'lottery', agents: 0, slots: 4 })).toBeUndefined()
  expect(whatIf({ policy: 'fifo', slots: 4 })).toEqual({ policy: 'fifo' })
  expect(whatIf({ agents: 2 })).toEqual({ agents: 2, slots: 8 })
  expect(whatIf({ agents: 2.5, policy: 'fair_share' })).toEqual({ policy: 'fair_share' })
  expect(inWords({ policy: 'fair_share', agents: 1, slots: 4 })).toBe('policy fair share and 1 more agent of 4 slots')
})

test('all pictures have the same rows, and what is hidden has no name', () => {
  const happened = { segments: [[0, 1, 5, 9, 3]] as [number, number, number, number, number][] }
  const changed = { segments: [[1, 0, 5, 7, 0]] as [number, number, number, number, number][] }
  const picture = courseOf(['a', 'b'], [happened, changed], changed)
  expect(picture.rows).toEqual([
    { agent: 'a', slot: 1 },
    { agent: 'b', slot: 0 },
  ])
  expect(picture.bars).toMatchObject([{ agent: 'b', slot: 0, from: 5, until: 7, experiment: 0 }])
  expect(picture.bars[0]?.trial).toBe('of an experiment that you do not see')
  expect(courseOf(['a', 'b'], [happened, changed], happened).rows).toEqual(picture.rows)
})

test('figures are shown with their units, users side by side', () => {
  const found = {
    trials: 3, unfinished: 1, wait_mean_seconds: 90, wait_p95_seconds: 100, wait_longest_seconds: 100, used: 0.5,
    preemptions: 2, resizes: 0, took_seconds: 3600,
  } // biome-ignore format: numbers
  expect(FIGURES.map(([, shown]) => shown(found))).toContain('50.0 %')
  expect(FIGURES.map(([, shown]) => shown(found))).toContain('3, 1 not ended')
  const of = (user: string, wait: number) => ({ user, trials: 1, wait_mean_seconds: wait, slot_hours: 1 })
  const courses = [{ figures: { users: [of('bob', 5), of('ada', 1)] } }, { figures: { users: [of('ada', 2)] } }]
  expect(waitsByUser(courses)).toEqual([
    { user: 'ada', waits: [1, 2] },
    { user: 'bob', waits: [5, undefined] },
  ])
})
