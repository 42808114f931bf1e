/** What the page that compares keeps in the URL. */

import type { XAxis } from './curves'
import { exactText } from './exactJson'
import { type Zoom, zoomOf } from './zoom'

export const ITEMS_MAX = 20
/** More curves beside each other nobody tells apart. */
const REFERENCE = /^[1-9][0-9]{0,15}(-[1-9][0-9]{0,8})?$/
const AXES: XAxis[] = ['length', 'batches', 'time']

export interface CompareSearch {
  /** Experiments and trials, with commas between: "3,4-1". */
  items?: string | undefined
  metric?: string | undefined
  x?: XAxis | undefined
  log?: boolean | undefined
  smooth?: number | undefined
  zoom?: Zoom | undefined
  /** Item whose curve is drawn thick. */
  item?: string | undefined
  /** The two whose differences are shown. */
  a?: string | undefined
  b?: string | undefined
  /** Hyperparameters that do not differ, too. */
  all?: boolean | undefined
}

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function compareSearch(raw: Record<string, unknown>): CompareSearch {
  const found: CompareSearch = {}
  // A single experiment is read as a number.
  const items = itemsOf(typeof raw.items === 'number' ? String(raw.items) : raw.items)
  if (items.length > 0) found.items = items.join(',')
  for (const key of ['a', 'b', 'item'] as const) if (REFERENCE.test(String(raw[key]))) found[key] = String(raw[key])
  if (typeof raw.metric === 'string' && raw.metric !== '') found.metric = raw.metric
  if (AXES.some((axis) => axis === raw.x)) found.x = raw.x as XAxis
  for (const key of ['log', 'all'] as const) if (typeof raw[key] === 'boolean') found[key] = raw[key]
  if (typeof raw.smooth === 'number' && raw.smooth > 0 && raw.smooth < 1) found.smooth = raw.smooth
  const zoom = zoomOf(raw.zoom)
  if (zoom !== undefined) found.zoom = zoom
  return found
}

/** The items of such a list, each once, as far as they name something. */
export function itemsOf(list: unknown): string[] {
  if (typeof list !== 'string') return []
  const found = list.split(/[\s,]+/).filter((item) => REFERENCE.test(item))
  return [...new Set(found)].slice(0, ITEMS_MAX)
}

export interface Row {
  name: string
  values: unknown[]
  differs: boolean
}

/** One row per setting with its value in each item; those that differ come first, in their order. */
export function sideBySide(items: readonly Record<string, unknown>[]): Row[] {
  const names = [...new Set(items.flatMap((item) => Object.keys(item)))]
  const rows = names.map((name) => {
    const values = items.map((item) => item[name])
    return { name, values, differs: new Set(values.map((value) => exactText(value))).size > 1 }
  })
  return [...rows.filter((row) => row.differs), ...rows.filter((row) => !row.differs)]
}
