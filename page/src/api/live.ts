/** One stream of the log for the whole page. It goes on by itself after a break, from the last position that it saw. */

import type { QueryClient } from '@tanstack/react-query'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useSyncExternalStore } from 'react'
import {
  AT_REST,
  FOLLOWED,
  isBehind,
  type Key,
  type LogEvent,
  outdated,
  REFRESH_MS,
  refreshed,
  settled,
} from '../lib/live'
import { Refused } from './client'

export type Link = 'connecting' | 'live' | 'behind' | 'offline'

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

/** Follow the log from `position` on, for as long as the page is open. */
export function useLive(position: number | undefined): void {
  const client = useQueryClient()
  useEffect(() => (position === undefined ? undefined : follow(client, position)), [client, position])
}

function follow(client: QueryClient, position: number): () => void {
  const waiting = new Map<string, { key: Key; since: number }>()
  const asked = new Map<string, number>()
  const keys = new Map<string, Key>()
  const changed = new Map<string, number>()
  /** When each last changed; asked for once more when it has settled. */
  let open = false
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
  const source = new EventSource(`/api/v1/events/stream?after=${position}`, { withCredentials: true })
  const seen = (message: MessageEvent<string>) => {
    const event = JSON.parse(message.data) as LogEvent
    for (const key of outdated(event)) {
      const name = key.join('/')
      keys.set(name, key)
      changed.set(name, performance.now())
      waiting.set(name, { key, since: waiting.get(name)?.since ?? performance.now() })
    }
  }
  for (const type of FOLLOWED) source.addEventListener(type, seen)
  source.onopen = () => {
    open = true
    setLink('live')
  }
  source.onerror = () => {
    open = false
    setLink('offline')
  }
  return () => {
    clearInterval(refresh)
    source.close()
  }
}
