/** Where the dots and lines of a picture of rungs stand: columns side by side, better values higher. */

import { axisOf, ticksOf } from './axes'
import { bounds, trialNumber } from './numbers'
import type { Dot, Rung } from './rungs'

export const HEIGHT_PX = 420
export const TOP_PX = 44
const BOTTOM_PX = 16
/** Height of the line of those without a value, where there are any. */
const NOTHING_PX = 26
const LEFT_PX = 110
const RIGHT_PX = 60
const SPREAD_PX = 70
const STEP_MIN_PX = 84
/** Between columns; a picture of more than there is room for is scrolled. */
const SPREAD_PART = 0.36
/** Most of a step that dots and cut-off take on either side, so that columns stay apart. */

export interface Places {
  /** Of a rung, by its key. */
  column: (key: string) => number
  x: (dot: Dot) => number
  y: (value: number | undefined) => number
  /** Heights of marked values, with their labels. */
  ticks: (readonly [number, string])[]
  width: number
  /** Half of a column's width. */
  spread: number
}

/** `room`: width of the page, in pixels. Dots of one rung stand beside each other by their trial's number. */
export function placed(rungs: readonly Rung[], room: number, smallerIsBetter: boolean): Places {
  const found = rungs.flatMap((rung) => rung.dots.map((dot) => dot.metric))
  const values = found.filter((value) => value !== undefined)
  const nothing = values.length < found.length
  const bottom = BOTTOM_PX + (nothing ? NOTHING_PX : 0)
  const [low, high] = values.length > 0 ? bounds(values) : [0, 0]
  const span = high - low || 1
  const index = new Map(rungs.map((rung, at) => [rung.key, at]))
  const steps = Math.max(1, rungs.length - 1)
  const step = Math.max(STEP_MIN_PX, (room - LEFT_PX - RIGHT_PX) / steps)
  const width = Math.max(room, rungs.length > 1 ? LEFT_PX + RIGHT_PX + step * steps : 0)
  const spread = Math.min(SPREAD_PX, step * SPREAD_PART)
  const column = (key: string) => LEFT_PX + step * (index.get(key) ?? 0)
  const y = (value: number | undefined) => {
    if (value === undefined) return HEIGHT_PX - BOTTOM_PX
    const part = (value - low) / span
    return TOP_PX + (smallerIsBetter ? part : 1 - part) * (HEIGHT_PX - TOP_PX - bottom)
  }
  // The golden ratio spreads successive numbers evenly.
  const x = (dot: Dot) => column(dot.at) + (((trialNumber(dot.trial) * 0.618034) % 1) - 0.5) * spread
  const axis = axisOf('', values)
  const ticks = axis === undefined ? [] : ticksOf(axis).map(([part, label]) => [y(low + part * span), label] as const)
  if (nothing) ticks.push([y(undefined), 'no value'])
  return { column, x, y, ticks, width, spread }
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
