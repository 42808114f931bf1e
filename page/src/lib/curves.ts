/** Validations of many trials as the columns that uPlot draws: one shared, sorted x, and per trial a y or null at each x. */

import { drawable } from './numbers'

export interface Point {
  trial_id: string
  length: number
  batches: number
  time_us: number
  metrics: Record<string, unknown>
}

export type XAxis = 'length' | 'batches' | 'time'

export interface Curves {
  trials: string[]
  x: number[]
  /** One row per trial; null where it has no point at that x. */
  y: (number | null)[][]
}

/** Names of all metrics in the points, in the order in which they first occur. */
export function metricNames(points: readonly Point[]): string[] {
  const names = new Set<string>()
  for (const point of points) for (const name of Object.keys(point.metrics)) names.add(name)
  return [...names]
}

/** Curves of one metric. The newest measurement at an x stands; time counts in seconds from each trial's first point. */
export function curvesOf(points: readonly Point[], metric: string, axis: XAxis): Curves {
  const byTrial = new Map<string, Map<number, number>>()
  const first = new Map<string, number>()
  for (const point of points) {
    const value = drawable(point.metrics[metric])
    if (value === undefined) continue
    if (!first.has(point.trial_id)) first.set(point.trial_id, point.time_us)
    const started = first.get(point.trial_id) ?? point.time_us
    const x = axis === 'time' ? (point.time_us - started) / 1e6 : point[axis]
    let curve = byTrial.get(point.trial_id)
    if (curve === undefined) {
      curve = new Map()
      byTrial.set(point.trial_id, curve)
    }
    curve.set(x, value)
  }
  const all = new Set<number>()
  for (const curve of byTrial.values()) for (const x of curve.keys()) all.add(x)
  const x = [...all].sort((a, b) => a - b)
  const trials = [...byTrial.keys()].sort(byNumber)
  return { trials, x, y: trials.map((id) => x.map((at) => byTrial.get(id)?.get(at) ?? null)) }
}

/** Exponential moving average by Kingma and Ba's bias correction (2015, section 3), over the points that there are. `weight` in [0, 1). */
export function smoothed(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (weight <= 0) return [...values]
  let mean = 0
  let count = 0
  return values.map((value) => {
    if (value === null) return null
    count += 1
    mean = weight * mean + (1 - weight) * value
    return mean / (1 - weight ** count)
  })
}

/** Order of trials' ids "12-3": by experiment, then by number. */
export function byNumber(a: string, b: string): number {
  const [x, y] = [a.split('-').map(Number), b.split('-').map(Number)]
  return (x[0] ?? 0) - (y[0] ?? 0) || (x[1] ?? 0) - (y[1] ?? 0)
}
