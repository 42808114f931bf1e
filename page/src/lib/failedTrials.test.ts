import { expect, test } from 'vitest'
import { toldFailed } from './failedTrials'

const trial = (number: number, state: string, error: string | null = null) => ({ number, state, error })

test('trials that failed are told with the first error, which is cut where it is long', () => {
  expect(toldFailed([trial(1, 'running'), trial(2, 'completed')])).toBeUndefined()
  expect(toldFailed([trial(1, 'running'), trial(3, 'failed', ' out of memory ')])).toMatchObject({
    title: 'Trial 3 failed',
    error: 'out of memory',
  })
  const many = toldFailed([trial(3, 'failed', 'x'.repeat(100_000)), trial(4, 'failed')])
  expect(many?.title).toBe('2 trials failed')
  expect(many?.error).toHaveLength(300)
})
