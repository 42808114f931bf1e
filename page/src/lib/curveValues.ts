/** Values of curves at one place of the horizontal axis, as a reader of the picture wants them: from top to bottom. */

import type { Curves } from './curves'

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

/** Places of each curve's points, in order: found once for a picture, so that each move of the pointer is cheap. */
export function pointsOf(curves: Curves): number[][] {
  return curves.y.map((row) => row.flatMap((value, at) => (value === null || value === undefined ? [] : [at])))
}

/** The `most` curves whose values are nearest to the pointer's height `y`, the highest value first. Where a curve has no point at this
 * place, its last one before stands for it; a curve that has not begun, or that has ended, has none. `points`: of `pointsOf`. */
export function valuesAt(
  curves: Curves,
  points: readonly number[][],
  place: number,
  y: number,
  most: number,
): CurveValues {
  const found: CurveValue[] = []
  curves.y.forEach((row, index) => {
    const places = points[index] ?? []
    const at = places[lastUpTo(places, place)]
    const value = at === undefined ? undefined : row[at]
    if (value === null || value === undefined || (places.at(-1) ?? -1) < place) return
    found.push({ trial: curves.trials[index] ?? '', index, value })
  })
  const nearest = found.sort((a, b) => Math.abs(a.value - y) - Math.abs(b.value - y)).slice(0, most)
  return { shown: nearest.sort((a, b) => b.value - a.value), more: found.length - nearest.length }
}

/** Index of the last number that is not above `most`; -1 if there is none. */
function lastUpTo(sorted: readonly number[], most: number): number {
  let [low, high] = [0, sorted.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((sorted[middle] ?? 0) <= most) low = middle + 1
    else high = middle
  }
  return low - 1
}
