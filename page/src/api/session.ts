/** Who is signed in, and the ways in and out. */

import { type QueryClient, queryOptions } from '@tanstack/react-query'
import { answered, api, onSignedOut, Refused, refused } from './client'

const USER = ['user'] as const

type Who = { name: string; permissions: readonly string[] }

/** The user of this browser's session; null where nobody is signed in. Nothing is kept of what another user, or nobody, was shown. */
export const whoami = () =>
  queryOptions({
    queryKey: USER,
    queryFn: async ({ client }): Promise<Who | null> => {
      const before = client.getQueryData<Who | null>(USER)
      const now: Who | null = await answered(api.GET('/api/v1/user')).catch((error: unknown) => {
        if (error instanceof Refused && error.status === 401) return null
        throw error
      })
      if (now === null || (before && before.name !== now.name))
        client.removeQueries({ predicate: (query) => query.queryKey[0] !== USER[0] })
      return now
    },
    retry: false,
  })

/** Asks again who is signed in; an answer that is on its way may be older than what made somebody ask. */
export const askWho = (client: QueryClient) => client.invalidateQueries({ queryKey: USER, exact: true })

/** Whether the cluster has a provider of identities. */
export const waysIn = () =>
  queryOptions({
    queryKey: [...USER, 'ways in'],
    queryFn: () => answered(api.GET('/api/v1/login')),
    staleTime: Number.POSITIVE_INFINITY,
  })

export const PROVIDER = '/api/v1/sso'
/** Address at which the gateway sends a browser to the provider of identities. */

const PLACE = 'tenuto place'

/** The provider sends a browser back to the first page: this tab remembers where it was. */
export const keepPlace = () => window.sessionStorage.setItem(PLACE, window.location.pathname + window.location.search)

/** The place that was kept, once; undefined where none was, or where this is another page than the provider sends to. */
export function takePlace(): string | undefined {
  const place = window.sessionStorage.getItem(PLACE)
  window.sessionStorage.removeItem(PLACE)
  return place !== null && window.location.pathname === '/' && window.location.search === '' ? place : undefined
}

const CHANNEL = 'tenuto session'
const channel = typeof BroadcastChannel === 'undefined' ? undefined : new BroadcastChannel(CHANNEL)

/** The other tabs of this browser have the same session: they ask who is signed in now. */
const tellOthers = () => channel?.postMessage('changed')

/** Follows the session: any refusal for want of one, and what other tabs do with it, make this one ask who is signed in. */
export function followSession(client: QueryClient): void {
  const ask = () => {
    // Nobody is known yet, or nobody is signed in: the form is there.
    if (client.getQueryData(USER)) void askWho(client)
  }
  onSignedOut(ask)
  channel?.addEventListener('message', () => void askWho(client))
}

/** Signs in: the gateway answers with a cookie that no script can read. Throws Refused. */
export async function signIn(name: string, password: string, newPassword = ''): Promise<void> {
  const response = await fetch('/api/v1/login', {
    method: 'POST',
    credentials: 'same-origin',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ name, password, cookie: true, ...(newPassword && { new_password: newPassword }) }),
  })
  if (!response.ok) throw refused(response.status, await response.json().catch(() => undefined))
  tellOthers()
}

const LINK = /^#sign-in=([A-Za-z0-9_-]+)$/

/** The code of the link that opened this page; the address and the history forget it at once. */
export function takeLink(): string | undefined {
  const code = LINK.exec(window.location.hash)?.[1]
  if (code !== undefined) window.history.replaceState(null, '', window.location.pathname + window.location.search)
  return code
}

/** Signs in by a link of `tenuto page`, once. Throws Refused. */
export async function signInByLink(code: string): Promise<void> {
  const response = await fetch('/api/v1/login/link', {
    method: 'POST',
    credentials: 'same-origin',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ code }),
  })
  if (!response.ok) throw refused(response.status, await response.json().catch(() => undefined))
  tellOthers()
}

/** Ends the session. */
export async function signOut(): Promise<void> {
  await fetch('/api/v1/logout', { method: 'POST', credentials: 'same-origin' })
  tellOthers()
}
