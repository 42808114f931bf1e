/** Log lines of a trial or of an experiment: the newest ones or from the first one on, and what comes meanwhile. */

import { useEffect, useRef, useState } from 'react'
import { type LogSearch, nextAfter } from '../lib/logSearch'
import { answered, api } from './client'
import type { LogLineView } from './openapi'

const PAGE_LINES = 1000
const POLL_MS = 1000
const KEPT_MAX = 20_000
/** Lines that are held; of a longer log the newest ones. */

export type LogSource = { trial: string } | { experiment: number }

export interface Log {
  lines: LogLineView[]
  /** The sentence of the last request, if it was refused. */
  error: string
  loading: boolean
  /** True: more lines follow, and `goOn` asks for them. */
  more: boolean
  goOn: () => void
}

interface Query extends Omit<LogSearch, 'start'> {
  after?: number
  tail?: boolean
  limit: number
}

async function ask(source: LogSource, query: Query) {
  const asked =
    'trial' in source
      ? api.GET('/api/v1/trials/{trial_id}/logs', { params: { path: { trial_id: source.trial }, query } })
      : api.GET('/api/v1/experiments/{experiment_id}/logs', {
          params: { path: { experiment_id: source.experiment }, query },
        })
  const lines = await answered(asked as Promise<{ data?: LogLineView[]; error?: unknown; response: Response }>)
  const next = nextAfter((await asked).response.headers.get('Link'))
  return { lines, next }
}

/** All lines that fit the search, from the first one on, by pages. Throws what a refused request says. */
export async function* logPages(source: LogSource, search: LogSearch): AsyncGenerator<LogLineView[]> {
  const filter = { text: search.text, rank: search.rank, level: search.level }
  let after: number | undefined = 0
  while (after !== undefined) {
    const { lines, next }: { lines: LogLineView[]; next: number | undefined } = await ask(source, {
      ...filter,
      after,
      limit: PAGE_LINES,
    })
    yield lines
    after = next
  }
}

const NOTHING = { lines: [] as LogLineView[], error: '', loading: true, more: false }

/** `live`: lines may still come. */
export function useLog(source: LogSource, search: LogSearch, live: boolean): Log {
  const [state, setState] = useState(NOTHING)
  const onward = useRef(() => {})
  const key = JSON.stringify([source, search.text, search.rank, search.level, search.start, live])
  const [asked, setAsked] = useState(key)
  if (asked !== key) {
    setAsked(key)
    setState(NOTHING)
  }

  useEffect(() => {
    let over = false
    let timer: ReturnType<typeof setTimeout> | undefined
    const filter = { text: search.text, rank: search.rank, level: search.level }
    const filtered = Object.values(filter).some((value) => value !== undefined)
    let after = 0
    const add = (lines: LogLineView[], more: boolean) =>
      setState((before) => ({
        lines: lines.length === 0 ? before.lines : [...before.lines, ...lines].slice(-KEPT_MAX),
        error: '',
        loading: false,
        more,
      }))
    const begin = async () => {
      if (search.start) return
      // Where nothing of the last lines fits, the newest line says where to go on.
      if (filtered) after = (await ask(source, { tail: true, limit: 1 })).lines.at(-1)?.line ?? 0
      const { lines } = await ask(source, { ...filter, tail: true, limit: PAGE_LINES })
      after = Math.max(after, lines.at(-1)?.line ?? 0)
      if (!over) add(lines, false)
    }
    const follow = async () => {
      let [left, more] = [search.start ? 1 : Number.POSITIVE_INFINITY, true]
      while (more && left > 0 && !over) {
        const { lines, next } = await ask(source, { ...filter, after, limit: PAGE_LINES })
        after = Math.max(after, next ?? lines.at(-1)?.line ?? after)
        more = next !== undefined
        left -= 1
        if (!over) add(lines, more)
      }
      if (!over && live && !more) timer = setTimeout(() => again(follow), POLL_MS)
    }
    const again = (step: () => Promise<void>) =>
      step().catch((error: unknown) => {
        if (over) return
        setState((before) => ({
          ...before,
          loading: false,
          error: error instanceof Error ? error.message : String(error),
        }))
        if (live) timer = setTimeout(() => again(follow), 5 * POLL_MS)
      })
    onward.current = () => void again(follow)
    void again(async () => {
      await begin()
      if (!over && (live || search.start)) await follow()
    })
    return () => {
      over = true
      clearTimeout(timer)
    }
  }, [key])

  return { ...state, goOn: () => onward.current() }
}
