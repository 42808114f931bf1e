/** Filters and order of a list, kept in the URL so that a link shows the same. */

export interface ListSearch {
  text?: string | undefined
  state?: string | undefined
  user?: string | undefined
  by?: string | undefined
  down?: boolean | undefined
}

interface Listed {
  id: number
  name: string
  state: string
  user: string
  labels: string[]
  method: string
  submitted_us: number
  best_metric?: number | string | null
}

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function listSearch(raw: Record<string, unknown>): ListSearch {
  const found: ListSearch = {}
  for (const key of ['text', 'state', 'user', 'by'] as const) {
    const value = raw[key]
    if (typeof value === 'string' && value !== '') found[key] = value
    else if (typeof value === 'number') found[key] = String(value)
  }
  if (raw.down === true || raw.down === false) found.down = raw.down
  return found
}

/** True if the experiment fits: every word occurs in its number, name, method, user or labels. */
export function fits(item: Listed, search: ListSearch): boolean {
  if (search.state !== undefined && item.state !== search.state) return false
  if (search.user !== undefined && item.user !== search.user) return false
  const text = [String(item.id), item.name, item.method, item.user, ...item.labels].join('\n').toLowerCase()
  return (search.text ?? '')
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word))
}

type Value = string | number | null | undefined

/** Order by a value; what has none comes last, whichever way. */
export function compared(a: Value, b: Value, descending: boolean): number {
  const [missingA, missingB] = [a == null, b == null]
  if (missingA || missingB) return Number(missingA) - Number(missingB)
  const order = typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b))
  return descending ? -order : order
}
