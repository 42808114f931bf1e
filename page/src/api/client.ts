import createClient from 'openapi-fetch'
import { exactText, parseExact } from '../lib/exactJson'
import { patienceSeconds } from '../lib/patience'
import type { paths } from './openapi'

export interface Problem {
  path: string
  message: string
}

/** A refusal of the gateway, with the one sentence that it gives. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** The gateway's word for the kind of refusal, such as "password_change". */
    readonly code = '',
    /** What is wrong in a configuration, by setting. */
    readonly problems: readonly Problem[] = [],
  ) {
    super(message)
    this.name = 'Refused'
  }
}

let signedOut = () => {}

/** What is called when any question is answered by 401: the session has ended. */
export function onSignedOut(call: () => void): void {
  signedOut = call
}

const WHO = '/api/v1/user'
/** Its answer says by itself that nobody is signed in. */

/** All questions of the page but those of signing in go through here. */
export async function asking(request: Request): Promise<Response> {
  const response = await fetch(request)
  if (response.status === 401 && new URL(request.url).pathname !== WHO) signedOut()
  return response
}

export const api = createClient<paths>({
  credentials: 'same-origin',
  bodySerializer: (body) => exactText(body),
  fetch: (request) =>
    asking(new Request(request, { signal: AbortSignal.timeout(patienceSeconds(request.url) * 1000) })),
})

// Every answer is read with all digits of its numbers.
api.use({
  onResponse: async ({ response, options: { parseAs } }) => {
    if (!response.ok || parseAs !== 'json') return undefined
    const text = await response.text()
    if (text === '') return undefined
    const { status, statusText } = response
    const headers = new Headers(response.headers)
    headers.set('Content-Length', String(text.length)) // with none the library reads the text by itself
    const exact = new Response(text, { status, statusText, headers })
    exact.json = async () => parseExact(text)
    return exact
  },
})

interface Answer<T> {
  data?: T
  error?: unknown
  response: Response
}

/** The data of an answer. Throws Refused with the gateway's sentence. */
export async function answered<T>(asked: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await asked
  if (response.ok) return data as T
  throw refused(response.status, error)
}

/** All pages of a list, up to `most` rows: each question names the last row of the page before. */
export async function pages<T>(most: number, ask: (last?: T) => Promise<Answer<T[]>>): Promise<T[]> {
  const found: T[] = []
  for (;;) {
    const asked = ask(found.at(-1))
    found.push(...(await answered(asked)))
    const more = (await asked).response.headers.get('Tenuto-More') === 'true'
    if (!more || found.length >= most) return found
  }
}

/** Position at which the next page of events begins; undefined where there is none. */
export function onward(response: Response, parameter: 'before' | 'after'): number | undefined {
  const query = /<\?([^>]*)>; rel="next"/.exec(response.headers.get('Link') ?? '')?.[1]
  const position = new URLSearchParams(query).get(parameter)
  return position === null ? undefined : Number(position)
}

export function refused(status: number, body: unknown): Refused {
  return new Refused(
    status,
    sentenceOf(body) ?? `The gateway answered with status ${status}.`,
    codeOf(body),
    problemsOf(body),
  )
}

function codeOf(body: unknown): string {
  const error = typeof body === 'object' && body !== null && 'error' in body ? body.error : undefined
  return typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : ''
}

function problemsOf(body: unknown): Problem[] {
  const error = typeof body === 'object' && body !== null && 'error' in body ? body.error : undefined
  if (typeof error !== 'object' || error === null || !('problems' in error) || !Array.isArray(error.problems)) return []
  return error.problems.map((one: Record<string, unknown>) => ({
    path: String(one.path),
    message: String(one.message),
  }))
}

/** The sentence for people in an error's body (RFC 9457 problem details). */
export function sentenceOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined
  if ('detail' in error && typeof error.detail === 'string') return error.detail
  if ('error' in error && typeof error.error === 'object' && error.error !== null && 'message' in error.error)
    return String(error.error.message)
  return undefined
}
