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

/** Ends the session. */
export async function signOut(): Promise<void> {
  await fetch('/api/v1/logout', { method: 'POST', credentials: 'same-origin' })
}
