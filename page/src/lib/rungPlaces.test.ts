import { expect, test } from 'vitest'
import { nearestDot, placed, TOP_PX } from './rungPlaces'
import type { Dot, Rung } from './rungs'

const dot = (trial: string, rung: number, metric: number): Dot => ({
  trial,
  at: `/${rung}`,
  metric,
  fate: 'waits',
  sentence: '',
  position: 1,
})
const rung = (number: number, ...dots: Dot[]): Rung => ({
  key: `/${number}`,
  rung: number,
  bracket: undefined,
  length: 4 ** number,
  unit: 'epochs',
  cutOff: undefined,
  dots,
})
const RUNGS = [rung(0, dot('1-1', 0, 0.5), dot('1-2', 0, 0.9)), rung(1, dot('1-1', 1, 0.2))]

test('better values are higher, and rungs go from left to right', () => {
  const places = placed(RUNGS, 800, true)
  expect(places.y(0.2)).toBeLessThan(places.y(0.9))
  expect(placed(RUNGS, 800, false).y(0.2)).toBeGreaterThan(placed(RUNGS, 800, false).y(0.9))
  expect(places.column('/0')).toBeLessThan(places.column('/1'))
})

test('a click finds the nearest dot, and none far away', () => {
  const places = placed(RUNGS, 800, true)
  const wanted = RUNGS[0]?.dots[1] as Dot
  expect(nearestDot(RUNGS, places, places.x(wanted) + 3, places.y(0.9) - 2, 10)).toBe(wanted)
  expect(nearestDot(RUNGS, places, places.x(wanted) + 30, places.y(0.9), 10)).toBeUndefined()
})

test('a hundred thousand dots have their places', () => {
  const dots = Array.from({ length: 100_000 }, (_, at) => dot(`1-${at}`, 0, at))
  expect(placed([rung(0, ...dots)], 800, true).y(0)).toBe(TOP_PX)
})
