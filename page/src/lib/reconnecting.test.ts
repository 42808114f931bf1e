import { expect, test } from 'vitest'
import { REOPEN_MS_MAX, reopenPauseMs } from './reconnecting'

test('each refusal in a row doubles the pause, up to the longest', () => {
  const pauses = [1, 2, 3, 4, 7, 8, 1000].map((refusals) => reopenPauseMs(refusals, 1))
  expect(pauses).toEqual([1_000, 2_000, 4_000, 8_000, REOPEN_MS_MAX, REOPEN_MS_MAX, REOPEN_MS_MAX])
})

test('those that were refused together come back over half of the pause', () => {
  expect([0, 0.5, 1].map((random) => reopenPauseMs(3, random))).toEqual([2_000, 3_000, 4_000])
})
