import { refused } from './client'

/** Signs in: the gateway answers with a cookie that no script can read. Throws Refused. */
export async function signIn(name: string, password: string, newPassword = ''): Promise<void> {
  const response = await fetch('/api/v1/login', {
    method: 'POST',
    credentials: 'same-origin',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ name, password, cookie: true, ...(newPassword && { new_password: newPassword }) }),
  })
  if (!response.ok) throw refused(response.status, await response.json().catch(() => undefined))
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
}

/** Ends the session. */
export async function signOut(): Promise<void> {
  await fetch('/api/v1/logout', { method: 'POST', credentials: 'same-origin' })
}
