import { expect, test } from 'vitest'
import { toldNotFinite } from './notFinite'

const point = (batches: number, loss: unknown) => ({ trial_id: '1-2', batches, metrics: { loss } })

test('values that are not finite are told: how many, and where the first one is', () => {
  expect(toldNotFinite([point(1, 0.5), point(2, 'NaN')], 'loss')).toBe(
    'One value is not drawn: NaN, of trial 1-2 at batch 2.',
  )
  expect(toldNotFinite([point(3, '-Infinity'), point(4, 'NaN')], 'loss')).toContain('2 values that are not finite')
  expect(toldNotFinite([{ batches: 7, metrics: { loss: 'Infinity' } }], 'loss')).toContain('Infinity, of batch 7')
})

test('nothing is told where all values are drawn, or none was reported', () => {
  expect(toldNotFinite([point(1, 0.5), point(2, null), point(3, 2n ** 60n)], 'loss')).toBe('')
  expect(toldNotFinite([point(1, 'NaN')], 'accuracy')).toBe('')
})
