import { expect, test } from 'vitest'
import { inexact } from './inexactTrials'

test('each reason is told once, with the trials that it concerns', () => {
  const order = 'the order of its records cannot be drawn again'
  const lock = 'self.lock cannot be saved'
  expect(inexact([{ number: 1 }, { number: 2, breaks: [] }])).toEqual({ told: [], more: 0 })
  expect(
    inexact([
      { number: 1, breaks: [order] },
      { number: 2, breaks: [lock, order] },
    ]),
  ).toEqual({
    told: [
      { sentence: order, first: 1, trials: 2 },
      { sentence: lock, first: 2, trials: 1 },
    ],
    more: 0,
  })
})

test('of many reasons the first are told, and how many more there are', () => {
  const breaks = Array.from({ length: 12 }, (_, index) => `reason ${index}`)
  const { told, more } = inexact([{ number: 3, breaks }])
  expect(told.map((one) => one.sentence)).toEqual(breaks.slice(0, 5))
  expect(more).toBe(7)
})
