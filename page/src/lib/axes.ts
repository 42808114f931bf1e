/** Hyperparameters and metrics as axes: numbers, logarithms and categories, each placed between 0 and 1. */

import { drawable, shownNumber, shownValue } from './numbers'

export type Axis =
  | { name: string; kind: 'number' | 'log'; low: number; high: number; whole?: boolean }
  | { name: string; kind: 'category'; values: string[] }

const CATEGORIES_MAX = 40
const TICKS = [0, 0.25, 0.5, 0.75, 1]

/** The axis that holds all values; undefined where there are none, or where they differ like names. */
export function axisOf(name: string, values: readonly unknown[], log = false): Axis | undefined {
  const known = values.filter((value) => value !== undefined && value !== null)
  if (known.length === 0) return undefined
  const numbers = known.map(drawable)
  if (numbers.every((value) => value !== undefined)) {
    let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
    for (const value of numbers) {
      low = Math.min(low, value)
      high = Math.max(high, value)
    }
    return { name, kind: log && low > 0 ? 'log' : 'number', low, high, whole: numbers.every(Number.isInteger) }
  }
  const found = [...new Set(known.map(shownValue))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }))
  return found.length > CATEGORIES_MAX ? undefined : { name, kind: 'category', values: found }
}

/** From 0 to 1; undefined for what has no place. One value alone stands in the middle. */
export function placeOn(axis: Axis, value: unknown): number | undefined {
  if (axis.kind === 'category') {
    const at = value === undefined || value === null ? -1 : axis.values.indexOf(shownValue(value))
    if (at < 0) return undefined
    return axis.values.length === 1 ? 0.5 : at / (axis.values.length - 1)
  }
  const number = drawable(value)
  if (number === undefined || (axis.kind === 'log' && number <= 0)) return undefined
  if (axis.low === axis.high) return 0.5
  if (axis.kind === 'number') return (number - axis.low) / (axis.high - axis.low)
  return (Math.log(number) - Math.log(axis.low)) / (Math.log(axis.high) - Math.log(axis.low))
}

/** The value at a place of an axis, as people read it. */
export function valueAt(axis: Axis, place: number): string {
  if (axis.kind === 'category') return axis.values[Math.round(place * (axis.values.length - 1))] ?? ''
  if (axis.kind === 'number') return shownNumber(Number((axis.low + place * (axis.high - axis.low)).toPrecision(4)))
  return shownNumber(Number(Math.exp(Math.log(axis.low) + place * Math.log(axis.high / axis.low)).toPrecision(4)))
}

/** Places of ticks with their labels: a category each, or at most five numbers, whole ones where all values are. */
export function ticksOf(axis: Axis): [number, string][] {
  if (axis.kind === 'category')
    return axis.values.map((value, at) => [axis.values.length === 1 ? 0.5 : at / (axis.values.length - 1), value])
  if (axis.low === axis.high) return [[0.5, shownNumber(axis.low)]]
  if (axis.kind === 'number' && axis.whole) {
    const values = new Set(TICKS.map((place) => Math.round(axis.low + place * (axis.high - axis.low))))
    return [...values].map((value) => [(value - axis.low) / (axis.high - axis.low), shownNumber(value)])
  }
  return TICKS.map((place) => [place, valueAt(axis, place)])
}

/** Names in a search space that are drawn on a logarithmic scale. */
export function logNames(space: unknown, prefix = ''): string[] {
  if (typeof space !== 'object' || space === null) return []
  return Object.entries(space).flatMap(([name, leaf]) => {
    if (typeof leaf !== 'object' || leaf === null) return []
    const type: unknown = 'type' in leaf ? leaf.type : undefined
    if (type === 'log') return [`${prefix}${name}`]
    return typeof type === 'string' ? [] : logNames(leaf, `${prefix}${name}.`)
  })
}
