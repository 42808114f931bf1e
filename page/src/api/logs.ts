/** Log lines of a trial or of an experiment: the newest ones or from the first one on, and what comes meanwhile. */

import { useEffect, useRef, useState } from 'react'
import { type LogSearch, nextAfter } from '../lib/logSearch'
import { answered, api } from './client'
import { PAGE_LINES, type Query, readLog } from './logReader'
import type { LogLineView } from './openapi'

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
    const add = (lines: LogLineView[], more: boolean) =>
      setState((before) => ({
        lines: lines.length === 0 ? before.lines : [...before.lines, ...lines].slice(-KEPT_MAX),
        error: '',
        loading: false,
        more,
      }))
    const refused = (error: unknown) =>
      setState((before) => ({
        ...before,
        loading: false,
        error: error instanceof Error ? error.message : String(error),
      }))
    const reader = readLog((query) => ask(source, query), search, live, add, refused)
    onward.current = reader.goOn
    return reader.stop
  }, [key])

  return { ...state, goOn: () => onward.current() }
}
