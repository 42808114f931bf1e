/** Where the dots and lines of a picture of rungs stand: columns side by side, better values higher. */

import { axisOf, ticksOf } from './axes'
import { bounds, trialNumber } from './numbers'
import type { Dot, Rung } from './rungs'

export const HEIGHT_PX = 420
const TOP_PX = 36
const BOTTOM_PX = 16
const LEFT_PX = 110
const RIGHT_PX = 60
export const SPREAD_PX = 70

export interface Places {
  column: (rung: Pick<Rung, 'rung'>) => number
  x: (dot: Dot) => number
  y: (value: number) => number
  /** Heights of marked values, with their labels. */
  ticks: (readonly [number, string])[]
}

/** Dots of one rung stand beside each other by their trial's number. */
export function placed(rungs: readonly Rung[], width: number, smallerIsBetter: boolean): Places {
  const values = rungs.flatMap((rung) => rung.dots.map((dot) => dot.metric))
  const [low, high] = bounds(values)
  const span = high - low || 1
  const index = new Map(rungs.map((rung, at) => [rung.rung, at]))
  const step = rungs.length > 1 ? (width - LEFT_PX - RIGHT_PX) / (rungs.length - 1) : 0
  const column = (rung: Pick<Rung, 'rung'>) => LEFT_PX + step * (index.get(rung.rung) ?? 0)
  const y = (value: number) => {
    const part = (value - low) / span
    return TOP_PX + (smallerIsBetter ? part : 1 - part) * (HEIGHT_PX - TOP_PX - BOTTOM_PX)
  }
  // The golden ratio spreads successive numbers evenly.
  const x = (dot: Dot) => column(dot) + (((trialNumber(dot.trial) * 0.618034) % 1) - 0.5) * SPREAD_PX
  const axis = axisOf('', values)
  const ticks = axis === undefined ? [] : ticksOf(axis).map(([part, label]) => [y(low + part * span), label] as const)
  return { column, x, y, ticks }
}

/** The dot nearest to a point, both in pixels; undefined where none is within `nearPx`. */
export function nearestDot(
  rungs: readonly Rung[],
  places: Places,
  x: number,
  y: number,
  nearPx: number,
): Dot | undefined {
  let best: Dot | undefined
  let distance = nearPx
  for (const rung of rungs) {
    for (const dot of rung.dots) {
      const away = Math.hypot(places.x(dot) - x, places.y(dot.metric) - y)
      if (away < distance) {
        best = dot
        distance = away
      }
    }
  }
  return best
}
