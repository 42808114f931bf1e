/** Reads a log in pages: what there is, and then what comes. */

import type { LogSearch } from '../lib/logSearch'
import type { LogLineView } from './openapi'

export const PAGE_LINES = 1000
export const POLL_MS = 1000
export const LATE_POLL_MS = 5000
/** Between two looks for lines of a run that has ended: they are stored apart from the events, and may come after its end. */

export const QUIET_LOOKS_MAX = 24
/** Looks in a row without a new line that end the looks for lines of a run that has ended: two minutes. */

export interface Query extends Omit<LogSearch, 'start'> {
  after?: number
  tail?: boolean
  limit: number
}

export type Ask = (query: Query) => Promise<{ lines: LogLineView[]; next: number | undefined }>

export interface LogReader {
  /** Asks for the next page, if there is more. */
  goOn: () => void
  stop: () => void
}

/** `live`: many lines may still come. `add` gets lines in order, and whether more follow; `refused` what went wrong. */
export function readLog(
  ask: Ask,
  search: LogSearch,
  live: boolean,
  add: (lines: LogLineView[], more: boolean) => void,
  refused: (error: unknown) => void,
): LogReader {
  let over = false
  let timer: ReturnType<typeof setTimeout> | undefined
  const filter = { text: search.text, rank: search.rank, level: search.level }
  const filtered = Object.values(filter).some((value) => value !== undefined)
  let after = 0
  let begun = search.start === true
  let quiet = 0
  const later = (milliseconds: number) => {
    if (live || quiet < QUIET_LOOKS_MAX) timer = setTimeout(() => again(begun ? follow : start), milliseconds)
  }
  const begin = async () => {
    if (begun) return
    // Where nothing of the last lines fits, the newest line says where to go on.
    if (filtered) after = (await ask({ tail: true, limit: 1 })).lines.at(-1)?.line ?? 0
    const { lines } = await ask({ ...filter, tail: true, limit: PAGE_LINES })
    after = Math.max(after, lines.at(-1)?.line ?? 0)
    begun = true
    if (!over) add(lines, false)
  }
  const follow = async () => {
    let [left, more] = [search.start ? 1 : Number.POSITIVE_INFINITY, true]
    while (more && left > 0 && !over) {
      const { lines, next } = await ask({ ...filter, after, limit: PAGE_LINES })
      after = Math.max(after, next ?? lines.at(-1)?.line ?? after)
      more = next !== undefined
      left -= 1
      quiet = lines.length > 0 ? 0 : quiet + 1
      if (!over) add(lines, more)
    }
    if (!over && !more) later(live ? POLL_MS : LATE_POLL_MS)
  }
  const again = (step: () => Promise<void>) =>
    step().catch((error: unknown) => {
      if (over) return
      refused(error)
      quiet += 1
      later(LATE_POLL_MS)
    })
  const start = async () => {
    await begin()
    if (over) return
    if (live || search.start) await follow()
    else later(LATE_POLL_MS)
  }
  void again(start)
  return {
    goOn: () => {
      clearTimeout(timer)
      quiet = 0
      void again(begun ? follow : start)
    },
    stop: () => {
      over = true
      clearTimeout(timer)
    },
  }
}
