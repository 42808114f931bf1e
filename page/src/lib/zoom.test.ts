import { expect, test } from 'vitest'
import { experimentSearch } from './experimentSearch'
import { zoomBy, zoomOf } from './zoom'

const PLOT = { width: 100, height: 50 }
/** 10 a pixel to the right, from 0; 1 a pixel upwards, from 0. */
const valueAt = (pixel: number, axis: 'x' | 'y') => (axis === 'x' ? pixel * 10 : 50 - pixel)

test('an address holds both axes, or one of them', () => {
  expect(zoomOf([1, 2, 0.5, 0.75])).toEqual([1, 2, 0.5, 0.75])
  expect(zoomOf([1, 2, null, null])).toEqual([1, 2, null, null])
  expect(experimentSearch({ zoom: [null, null, -1, 3] }).zoom).toEqual([null, null, -1, 3])
})

test.each([
  [[2, 1, 0, 1]],
  [[1, 2]],
  ['1,2'],
  [[null, null, null, null]],
  [[1, null, 0, 1]],
  [[1, 2, '0', 1]],
  [undefined],
])('%j is no zoom', (raw) => {
  expect(zoomOf(raw)).toBeUndefined()
  expect(experimentSearch({ zoom: raw })).toEqual({})
})

test('a box zooms both axes', () =>
  expect(zoomBy({ left: 10, top: 10, width: 20, height: 30 }, PLOT, valueAt, undefined)).toEqual([100, 300, 10, 40]))

test('a box of the whole height zooms the horizontal axis, and the vertical one fits', () => {
  const box = { left: 10, top: 0, width: 20, height: 50 }
  expect(zoomBy(box, PLOT, valueAt, [0, 900, 1, 2])).toEqual([100, 300, null, null])
})

test('a box of the whole width zooms the vertical axis only', () => {
  const box = { left: 0, top: 20, width: 100, height: 10 }
  expect(zoomBy(box, PLOT, valueAt, [100, 300, 10, 40])).toEqual([100, 300, 20, 30])
  expect(zoomBy(box, PLOT, valueAt, undefined)).toEqual([null, null, 20, 30])
})

test('a click that shook zooms nothing', () => {
  expect(zoomBy({ left: 10, top: 0, width: 2, height: 50 }, PLOT, valueAt, undefined)).toBeUndefined()
  expect(zoomBy({ left: 10, top: 0, width: 2, height: 50 }, PLOT, valueAt, [1, 2, 3, 4])).toEqual([1, 2, 3, 4])
})

test('values are short', () =>
  expect(zoomBy({ left: 1, top: 0, width: 50, height: 50 }, PLOT, (pixel) => pixel / 3, undefined)).toEqual([
    0.333333,
    17,
    null,
    null,
  ]))
