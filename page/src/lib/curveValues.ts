/** Values of curves at one place of the horizontal axis, as a reader of the picture wants them: from top to bottom. */

import type { Curves } from './curves'

const BACK_MAX = 2_000
/** Places that are looked at to the left of the pointer for a curve's last point. */

export interface CurveValue {
  trial: string
  /** Of the curve, which has its colour. */
  index: number
  value: number
}

export interface CurveValues {
  shown: CurveValue[]
  /** Number of curves that have a value there and are not shown. */
  more: number
}

/** The `most` curves whose values are nearest to the pointer's height `y`, the highest value first. Where a curve has no point at this
 * place, its last one before stands for it; a curve that has not begun, or that has ended, has none. */
export function valuesAt(curves: Curves, place: number, y: number, most: number): CurveValues {
  const found: CurveValue[] = []
  curves.y.forEach((row, index) => {
    const value = lastValue(row, place)
    if (value !== undefined && !hasEnded(row, place)) found.push({ trial: curves.trials[index] ?? '', index, value })
  })
  const nearest = found.sort((a, b) => Math.abs(a.value - y) - Math.abs(b.value - y)).slice(0, most)
  return { shown: nearest.sort((a, b) => b.value - a.value), more: found.length - nearest.length }
}

function lastValue(row: readonly (number | null)[], place: number): number | undefined {
  for (let at = place; at >= Math.max(0, place - BACK_MAX); at -= 1) {
    const value = row[at]
    if (value !== null && value !== undefined) return value
  }
  return undefined
}

function hasEnded(row: readonly (number | null)[], place: number): boolean {
  for (let at = place; at < Math.min(row.length, place + BACK_MAX); at += 1) if (row[at] != null) return false
  return true
}
