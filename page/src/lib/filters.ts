/** Filters, order and columns of the list of experiments, kept in the URL so that a link shows the same. */

export const TIMES = { day: 86_400, week: 7 * 86_400, month: 30 * 86_400 } as const
export type Time = keyof typeof TIMES
export const LIMIT_FIRST = 200
export const LIMIT_MAX = 1000

const TEXT_MAX = 256
/** Characters of a search that the gateway takes; by the rest what it found is searched here. */

export interface ListSearch {
  text?: string | undefined
  state?: (typeof STATES)[number] | undefined
  user?: string | undefined
  workspace?: string | undefined
  label?: string | undefined
  method?: string | undefined
  /** Submitted within so long. */
  time?: Time | undefined
  archived?: boolean | undefined
  /** Experiments that are asked for, the first ones of the order. */
  limit?: number | undefined
  by?: string | undefined
  down?: boolean | undefined
  /** Columns that are left out, with commas between; none. Not given: those that few look at. */
  without?: string | undefined
}

/** Left out until somebody chooses columns: most clusters have one workspace, one pool and one priority. */
const WITHOUT_FIRST = ['workspace', 'pool', 'priority']
const NONE = 'none'

/** Columns that are left out. */
export function columnsWithout(search: ListSearch): string[] {
  if (search.without === undefined) return WITHOUT_FIRST
  return search.without === NONE ? [] : search.without.split(',')
}

/** The same as they stand in the URL. */
export const shownWithout = (columns: readonly string[]) => columns.join(',') || NONE

export const STATES = ['active', 'paused', 'canceling', 'completed', 'failed', 'canceled', 'unmanaged'] as const

interface Listed {
  id: number
  name: string
  state: string
  user: string
  workspace: string
  labels: string[]
  method: string
  submitted_us: number
  best_metric?: number | string | null
}

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function listSearch(raw: Record<string, unknown>): ListSearch {
  const found: ListSearch = {}
  if (STATES.some((state) => state === raw.state)) found.state = raw.state as (typeof STATES)[number]
  for (const key of ['text', 'user', 'workspace', 'label', 'method', 'by', 'without'] as const) {
    const value = raw[key]
    if (typeof value === 'string' && value !== '') found[key] = value
    else if (typeof value === 'number') found[key] = String(value)
  }
  if (typeof raw.time === 'string' && raw.time in TIMES) found.time = raw.time as Time
  for (const key of ['down', 'archived'] as const) if (typeof raw[key] === 'boolean') found[key] = raw[key]
  const { limit } = raw
  if (typeof limit === 'number' && Number.isInteger(limit) && limit > 0 && limit <= LIMIT_MAX) found.limit = limit
  return found
}

/** Columns by which the gateway orders all experiments, with its names for them; by another, those that are shown are ordered. */
const ORDERED = { id: 'id', submitted: 'id', name: 'name', user: 'user', state: 'state', best: 'metric' } as const

/** Whether what is shown is the first of all experiments in this order. */
export const isOrdered = (by: string): by is keyof typeof ORDERED => by in ORDERED

/** What the gateway filters by: so that what fits is found beyond the newest ones, too. `nowUs` is rounded to a minute, as it is
 * part of the question. */
export function asked(search: ListSearch, nowUs: number) {
  const after = search.time === undefined ? undefined : nowUs - TIMES[search.time] * 1e6
  const by = search.by ?? 'id'
  return {
    limit: search.limit ?? LIMIT_FIRST,
    sort: isOrdered(by) ? ORDERED[by] : 'id',
    order: isOrdered(by) && search.down === false ? ('asc' as const) : ('desc' as const),
    state: search.state,
    user: search.user,
    workspace: search.workspace,
    label: search.label,
    method: search.method,
    text: search.text?.trim().slice(0, TEXT_MAX) || undefined,
    archived: search.archived,
    submitted_after_us: after === undefined ? undefined : Math.floor(after / 60e6) * 60e6,
    total: true,
  }
}

/** True if the experiment fits: every word occurs in its number, name, method, user or labels. */
export function fits(item: Listed, search: ListSearch): boolean {
  if (search.state !== undefined && item.state !== search.state) return false
  if (search.user !== undefined && item.user !== search.user) return false
  if (search.workspace !== undefined && item.workspace !== search.workspace) return false
  if (search.label !== undefined && !item.labels.includes(search.label)) return false
  if (search.method !== undefined && item.method !== search.method) return false
  const text = [String(item.id), item.name, item.method, item.user, ...item.labels].join('\n').toLowerCase()
  return (search.text ?? '')
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word))
}

type Value = string | number | bigint | null | undefined

/** Order by a value; what has none comes last, whichever way. */
export function compared(a: Value, b: Value, descending: boolean): number {
  const [missingA, missingB] = [a == null, b == null]
  if (missingA || missingB) return Number(missingA) - Number(missingB)
  const numbers = typeof a !== 'string' && typeof b !== 'string' && a != null && b != null
  const order = numbers ? Number(a > b) - Number(a < b) : String(a).localeCompare(String(b))
  return descending ? -order : order
}
