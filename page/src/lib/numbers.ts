/** Numbers as people read them. */

import { exactText, numeric } from './exactJson'

/** A metric or hyperparameter: five significant digits, and "–" where there is none. JSON carries NaN and infinities as strings. */
export function shownNumber(value: number | bigint | string | null | undefined): string {
  if (value === null || value === undefined) return '–'
  if (typeof value === 'string' || typeof value === 'bigint') return String(value)
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value)
  const size = Math.abs(value)
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(3)
  return String(Number(value.toPrecision(5)))
}

/** A value of the configuration, of any kind, on one line. */
export function shownValue(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'bigint') return shownNumber(value)
  if (typeof value === 'string') return value
  return exactText(value)
}

/** The same with all its digits, as it was recorded: to be copied. Empty where there is none. */
export function wholeValue(value: unknown): string {
  if (value === null || value === undefined) return ''
  return typeof value === 'string' ? value : exactText(value)
}

export function shownBytes(bytes: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB']
  let size = bytes
  let unit = 0
  while (size >= 999.5 && unit < units.length - 1) {
    size /= 1000
    unit += 1
  }
  return `${unit === 0 ? size : size.toPrecision(3)} ${units[unit]}`
}

/** The number of a metric's JSON value; undefined for what cannot be drawn. */
export function drawable(value: unknown): number | undefined {
  const number = numeric(value)
  return Number.isFinite(number) ? number : undefined
}

/** The number of a trial in its experiment, of an id such as "12-3". */
export function trialNumber(id: string): number {
  return Number(id.split('-')[1] ?? 0)
}

/** The smallest and the largest; any number of values. */
export function bounds(values: readonly number[]): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
  for (const value of values) {
    if (value < low) low = value
    if (value > high) high = value
  }
  return [low, high]
}
