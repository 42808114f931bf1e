/** Filters of the log's page, kept in the URL, and what an event is in a few words. */

import { EVENT_TYPES } from '../api/eventTypes'
import { exactText } from './exactJson'

const KNOWN: ReadonlySet<string> = new Set(EVENT_TYPES)

export interface EventSearch {
  /** Types, with commas between. */
  type?: string | undefined
  service?: string | undefined
  experiment?: number | undefined
  /** Microseconds since 1970. */
  since?: number | undefined
  until?: number | undefined
  /** Position of the event that is looked at. */
  event?: number | undefined
}

/** An event as `GET /events/search` gives it. */
export interface Recorded {
  id: string
  position: number
  type: string
  time_us: number
  actor: string
  stream: string
  correlation_id: string
  causation_id: string | null
  data: Record<string, unknown>
  sentence?: string
}

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function eventSearch(raw: Record<string, unknown>): EventSearch {
  const found: EventSearch = {}
  if (typeof raw.type === 'string') {
    const types = raw.type.split(',').filter((type) => KNOWN.has(type))
    if (types.length > 0) found.type = types.join(',')
  }
  if (typeof raw.service === 'string' && raw.service !== '') found.service = raw.service.slice(0, 100)
  for (const key of ['experiment', 'event'] as const)
    if (Number.isSafeInteger(raw[key]) && Number(raw[key]) > 0) found[key] = Number(raw[key])
  for (const key of ['since', 'until'] as const)
    if (Number.isSafeInteger(raw[key]) && Number(raw[key]) >= 0) found[key] = Number(raw[key])
  return found
}

/** The filters as the gateway takes them. */
export function askedOf({ type, service, experiment, since, until }: EventSearch) {
  return {
    ...(type !== undefined && { type }),
    ...(service !== undefined && { service }),
    ...(experiment !== undefined && { experiment }),
    ...(since !== undefined && { since_us: since }),
    ...(until !== undefined && { until_us: until }),
  }
}

const HASHES = ['token_hash', 'secret_hash', 'credential_hash']
/** Of tokens, join tokens and credentials. Nobody finds a token from its hash, but a picture of the log is no place for it. */

/** The data as the page shows it; the record itself has them. */
export function withoutHashes(data: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(data).map(([name, value]) => [name, HASHES.includes(name) ? '(hash, not shown)' : value]),
  )
}

const SHOWN_CHARACTERS = 160

/** Its sentence; where it has none, its data on one line. */
export function gist(event: Recorded): string {
  if (event.sentence) return event.sentence
  const parts = Object.entries(withoutHashes(event.data)).map(([name, value]) => `${name} ${shown(value)}`)
  const line = parts.join(', ')
  return line.length > SHOWN_CHARACTERS ? `${line.slice(0, SHOWN_CHARACTERS - 1)}…` : line
}

function shown(value: unknown): string {
  const text = typeof value === 'string' ? value : exactText(value)
  return text.length > 60 ? `${text.slice(0, 59)}…` : text
}

/** "2026-11-22T14:03" in the reader's time zone, as an input of a date and a time takes it; empty for none. */
export function localInput(us: number | undefined): string {
  if (us === undefined) return ''
  const date = new Date(us / 1000)
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
}

export function fromInput(text: string): number | undefined {
  const time = new Date(text).getTime()
  return Number.isNaN(time) || time < 0 ? undefined : time * 1000
}
