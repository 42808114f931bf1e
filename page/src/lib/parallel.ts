/** Parallel coordinates: each trial is a line over axes, and brushes on axes choose among them. */

import { type Axis, axisOf, placeOn } from './axes'
import { flat } from './flatNames'
import { drawable } from './numbers'

export interface Measured {
  id: string
  number: number
  hyperparameters: Record<string, unknown>
  best_metric: number | string | null
}

/** Name of an axis -> the part of it that is chosen, between 0 and 1. */
export type Brushes = Record<string, [number, number]>

export interface Line {
  id: string
  number: number
  metric: number | undefined
  values: Record<string, unknown>
  /** By axis; undefined where the trial has no place there. */
  places: (number | undefined)[]
}

export interface Parallel {
  axes: Axis[]
  lines: Line[]
}

/** Hyperparameters that differ between the trials, by name, and the metric as the last axis. */
export function parallelOf(trials: readonly Measured[], metric: string, logs: readonly string[]): Parallel {
  const rows = trials.map((trial) => flat(trial.hyperparameters))
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))]
  const axes = names
    .map((name) =>
      axisOf(
        name,
        rows.map((row) => row[name]),
        logs.includes(name),
      ),
    )
    .filter((axis) => axis !== undefined)
    .filter((axis) => (axis.kind === 'category' ? axis.values.length > 1 : axis.low < axis.high))
  const found = axisOf(
    metric,
    trials.map((trial) => drawable(trial.best_metric)),
  )
  const all = found === undefined ? axes : [...axes, found]
  const lines = trials.map((trial, index) => {
    const values = { ...rows[index], ...(found && { [metric]: drawable(trial.best_metric) }) }
    return {
      id: trial.id,
      number: trial.number,
      metric: drawable(trial.best_metric),
      values,
      places: all.map((axis) => placeOn(axis, values[axis.name])),
    }
  })
  return { axes: all, lines }
}

/** True if the line goes through every brush. */
export function isChosen(line: Line, axes: readonly Axis[], brushes: Brushes): boolean {
  return axes.every((axis, index) => {
    const brush = brushes[axis.name]
    const place = line.places[index]
    return brush === undefined || (place !== undefined && place >= brush[0] && place <= brush[1])
  })
}

/** How good a metric is, from 0 (the worst) to 1 (the best of all lines); undefined where there is none. */
export function goodness(
  lines: readonly Line[],
  smallerIsBetter: boolean,
): (metric: number | undefined) => number | undefined {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
  for (const { metric } of lines) {
    if (metric === undefined) continue
    low = Math.min(low, metric)
    high = Math.max(high, metric)
  }
  return (metric) => {
    if (metric === undefined) return undefined
    if (high === low) return 1
    const part = (metric - low) / (high - low)
    return smallerIsBetter ? 1 - part : part
  }
}

/** Takes brushes of a URL as far as they make sense. */
export function brushesOf(raw: unknown): Brushes | undefined {
  if (typeof raw !== 'object' || raw === null) return undefined
  const found: Brushes = {}
  for (const [name, pair] of Object.entries(raw)) {
    if (!Array.isArray(pair) || pair.length !== 2) continue
    const [low, high] = pair.map(drawable)
    if (low !== undefined && high !== undefined && low >= 0 && high <= 1 && low < high) found[name] = [low, high]
  }
  return Object.keys(found).length > 0 ? found : undefined
}

/** The line nearest to a point, both in pixels; undefined where none is within `nearPx`. */
export function nearestLine(
  lines: readonly Line[],
  x: number,
  y: number,
  xs: readonly number[],
  heightPx: number,
  nearPx: number,
): Line | undefined {
  const right = Math.max(
    1,
    xs.findIndex((at) => at >= x),
  )
  const [x0, x1] = [xs[right - 1], xs[right]]
  if (x0 === undefined || x1 === undefined) return undefined
  const part = (x - x0) / (x1 - x0)
  let best: Line | undefined
  let distance = nearPx
  for (const line of lines) {
    const [a, b] = [line.places[right - 1], line.places[right]]
    if (a === undefined || b === undefined) continue
    const away = Math.abs((1 - (a + (b - a) * part)) * heightPx - y)
    if (away < distance) {
      best = line
      distance = away
    }
  }
  return best
}
