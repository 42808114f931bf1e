/** The Pareto front of trials by two metrics: those that no other one beats in both. */

import type { Point } from './curves'
import { drawable } from './numbers'

export interface Goal {
  metric: string
  smaller: boolean
}

export interface Placed {
  trial: string
  x: number
  y: number
  onFront: boolean
}

/** Each trial by its last validation that has both metrics, those on the front marked; by the first metric. */
export function frontOf(points: readonly Point[], a: Goal, b: Goal): Placed[] {
  const last = new Map<string, Placed>()
  for (const point of points) {
    const [x, y] = [drawable(point.metrics[a.metric]), drawable(point.metrics[b.metric])]
    if (x !== undefined && y !== undefined) last.set(point.trial_id, { trial: point.trial_id, x, y, onFront: false })
  }
  const cost = (value: number, goal: Goal) => (goal.smaller ? value : -value)
  const found = [...last.values()].sort((p, q) => cost(p.x, a) - cost(q.x, a) || cost(p.y, b) - cost(q.y, b))
  let best = Number.POSITIVE_INFINITY
  let bestX = Number.NaN
  for (const one of found) {
    const y = cost(one.y, b)
    // Two trials with the same values beat each other in nothing.
    one.onFront = y < best || (y === best && one.x === bestX)
    if (y < best) [best, bestX] = [y, one.x]
  }
  return found
}
