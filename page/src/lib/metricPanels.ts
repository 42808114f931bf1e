/** All metrics of one trial, each with its training and its validation curve. */

import type { Curves } from './curves'
import { isNotFinite } from './notFinite'
import { drawable } from './numbers'
import type { TrialAxis } from './trialSearch'

export interface MetricPoint {
  batches: number
  time_us: number
  metrics: Record<string, unknown>
}

export interface Panel {
  metric: string
  curves: Curves
}

export const TRAINING = 'training'
export const VALIDATION = 'validation'

/** One panel per metric: those that both report first, then the others, in the order in which they occur. Time counts from `startUs`. */
export function panelsOf(
  training: readonly MetricPoint[],
  validations: readonly MetricPoint[],
  axis: TrialAxis,
  startUs: number,
): Panel[] {
  const place = (point: MetricPoint) => (axis === 'time' ? (point.time_us - startUs) / 1e6 : point.batches)
  const [trained, validated] = [byMetric(training, place), byMetric(validations, place)]
  const names = [...new Set([...validated.keys(), ...trained.keys()])]
  const both = names.filter((name) => trained.has(name) && validated.has(name))
  return [...both, ...names.filter((name) => !both.includes(name))].map((metric) => {
    const found: [string, Map<number, number>][] = []
    const [a, b] = [trained.get(metric), validated.get(metric)]
    if (a !== undefined) found.push([TRAINING, a])
    if (b !== undefined) found.push([VALIDATION, b])
    const x = [...new Set(found.flatMap(([, curve]) => [...curve.keys()]))].sort((left, right) => left - right)
    const y = found.map(([, curve]) => x.map((at) => curve.get(at) ?? null))
    return { metric, curves: { trials: found.map(([name]) => name), x, y } }
  })
}

/** The newest value at a place stands. A metric that was never finite is there without a point. */
function byMetric(
  points: readonly MetricPoint[],
  place: (point: MetricPoint) => number,
): Map<string, Map<number, number>> {
  const found = new Map<string, Map<number, number>>()
  for (const point of points) {
    for (const [name, raw] of Object.entries(point.metrics)) {
      const value = drawable(raw)
      if (value === undefined && !isNotFinite(raw)) continue
      let curve = found.get(name)
      if (curve === undefined) {
        curve = new Map()
        found.set(name, curve)
      }
      if (value !== undefined) curve.set(place(point), value)
    }
  }
  return found
}
