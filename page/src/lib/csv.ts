/** CSV files (RFC 4180) of what the page shows, with all digits. */

import type { Curves } from './curves'
import { exactText } from './exactJson'

export type CsvCell = unknown

/** First characters by which a spreadsheet takes a text for a formula, and runs it (OWASP, "CSV Injection"). */
const FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/

export function csvOf(header: readonly string[], rows: readonly (readonly CsvCell[])[]): string {
  return [header, ...rows].map((row) => `${row.map(csvCell).join(',')}\r\n`).join('')
}

/** Empty for what is missing; JSON for lists and objects. A text that a spreadsheet would take for a formula gets an apostrophe
 * before it. */
export function csvCell(value: CsvCell): string {
  if (value === null || value === undefined) return ''
  if (typeof value !== 'string') return quoted(exactText(value).replace(/^"(.*)"$/s, '$1'))
  const isFormula = FORMULA.test(value) && (value.trim() === '' || Number.isNaN(Number(value)))
  return quoted(isFormula && value !== '-Infinity' ? `'${value}` : value)
}

function quoted(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

/** The points of a picture: a row for each place on its horizontal axis, a column for each curve. */
export function csvOfCurves(curves: Curves, xLabel: string): string {
  return csvOf(
    [xLabel, ...curves.trials],
    curves.x.map((x, at) => [x, ...curves.y.map((row) => row[at])]),
  )
}

/** Name of a file: what it shows, with the characters that every system takes. */
export function fileName(words: readonly (string | number)[], ending: string): string {
  const text = words.join(' ').replaceAll(/[^\p{L}\p{N}._-]+/gu, '-')
  return `${text.replaceAll(/^[-.]+|[-.]+$/g, '').slice(0, 100) || 'tenuto'}.${ending}`
}
