import { Refused, sentenceOf } from './client'

/** Signs in: the gateway answers with a cookie that no script can read. Throws Refused. */
export async function signIn(user: string, password: string): Promise<void> {
  const response = await fetch('/api/v1/login', {
    method: 'POST',
    credentials: 'same-origin',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ name: user, password, cookie: true }),
  })
  if (response.ok) return
  const body: unknown = await response.json().catch(() => undefined)
  throw new Refused(response.status, sentenceOf(body) ?? `The gateway answered with status ${response.status}.`)
}

/** Ends the session. */
export async function signOut(): Promise<void> {
  await fetch('/api/v1/logout', { method: 'POST', credentials: 'same-origin' })
}
