/** What the page shows follows the log: one stream for all tabs tells what has changed, and what is out of date is asked for again. */

import type { QueryClient } from '@tanstack/react-query'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useRef, useSyncExternalStore } from 'react'
import { AT_REST, isBehind, type Key, outdated, REFRESH_MS, refreshed, settled } from '../lib/outdatedQueries'
import { type Heard, missed, type Said, type Standing } from '../lib/streamHub'
import { Refused } from './client'
import { askWho } from './session'
import { listen } from './sharedStream'

export type Link = 'connecting' | 'live' | 'behind' | 'offline' | 'refused'
const LINKS: Record<Standing, Link> = { opening: 'connecting', open: 'live', broken: 'offline', refused: 'refused' }

let link: Link = 'connecting'
const listeners = new Set<() => void>()

function setLink(next: Link) {
  if (next === link) return
  link = next
  for (const listener of listeners) listener()
}

export function useLink(): Link {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => link,
  )
}

/** A refusal that a second question would not change. */
const isFinal = (error: unknown) => error instanceof Refused && error.status < 500 && error.status !== 429

/** Follow the log from `position` on as this user, for as long as the page is open. */
export function useLive(user: string | undefined, position: number | undefined): void {
  const client = useQueryClient()
  const first = useRef(position)
  first.current ??= position
  const from = first.current
  useEffect(
    () => (user === undefined || from === undefined ? undefined : follow(client, user, from)),
    [client, user, from],
  )
}

function follow(client: QueryClient, user: string, position: number): () => void {
  const waiting = new Map<string, { key: Key; since: number }>()
  const asked = new Map<string, number>()
  const keys = new Map<string, Key>()
  const changed = new Map<string, number>()
  /** When each last changed; asked for once more when it has settled. */
  let open = false
  let broke = false
  let pace = AT_REST
  const again = (name: string, now: number) => {
    const key = keys.get(name)
    changed.delete(name)
    keys.delete(name)
    if (key !== undefined && !waiting.has(name)) waiting.set(name, { key, since: now })
  }
  const refresh = setInterval(() => {
    const now = performance.now()
    const times = [...asked.values(), ...[...waiting.values()].map((one) => one.since)]
    if (open) setLink(isBehind(times, now) ? 'behind' : 'live')
    if (open) for (const name of settled(changed, now)) again(name, now)
    const due = refreshed(pace, now, waiting.size > 0)
    pace = due.pace
    if (!due.now) return
    for (const [name, { key: queryKey, since }] of [...waiting]) {
      // An answer on its way is waited for: to ask anew each time would never show a list that takes longer than the pause.
      if (client.isFetching({ queryKey }) > 0) continue
      waiting.delete(name)
      asked.set(name, since)
      client
        .invalidateQueries({ queryKey }, { throwOnError: true })
        // A gateway that was away answers the next time; a refusal stays one, and the page shows it.
        .catch((error: unknown) => isFinal(error) || waiting.set(name, { key: queryKey, since }))
        .finally(() => asked.delete(name))
    }
  }, REFRESH_MS)
  const seen = (event: Heard) => {
    for (const key of outdated(event)) {
      const name = key.join('/')
      keys.set(name, key)
      changed.set(name, performance.now())
      waiting.set(name, { key, since: waiting.get(name)?.since ?? performance.now() })
    }
  }
  let known = position
  const hear = (said: Said) => {
    if (missed(known, said)) void client.invalidateQueries()
    known = Math.max(known, said.kind === 'event' ? said.event.position : said.position)
    if (said.kind === 'event') return seen(said.event)
    if (said.kind === 'refused' || (said.kind === 'open' && broke)) void askWho(client)
    broke = said.kind === 'broken' || said.kind === 'refused'
    open = said.kind === 'open'
    setLink(LINKS[said.kind])
  }
  let leave = listen(user, known, hear)
  const hidden = () => leave()
  const shown = (event: PageTransitionEvent) => {
    if (event.persisted) leave = listen(user, known, hear) // what was kept of a page that was left goes on
  }
  window.addEventListener('pagehide', hidden)
  window.addEventListener('pageshow', shown)
  return () => {
    window.removeEventListener('pagehide', hidden)
    window.removeEventListener('pageshow', shown)
    clearInterval(refresh)
    leave()
  }
}
