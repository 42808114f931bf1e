/** Looks of curves that lie in one picture: colours first, then dashes, so that no two of 28 look the same. */

import { CURVE_COLORS } from '../theme'

const DASHES: readonly (readonly number[])[] = [[], [8, 4], [2, 3], [10, 3, 2, 3]]

export interface CurveStyle {
  color: string
  /** Lengths of lines and gaps in pixels; empty for a whole line. */
  dash: readonly number[]
}

export function curveStyle(index: number): CurveStyle {
  const color = CURVE_COLORS[index % CURVE_COLORS.length] ?? '#7F7F7F'
  return { color, dash: DASHES[Math.floor(index / CURVE_COLORS.length) % DASHES.length] ?? [] }
}
