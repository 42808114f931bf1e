/** What a new experiment is submitted with. */

import { queryOptions } from '@tanstack/react-query'
import { answered, api, asking, refused } from './client'
import type { Submitted } from './openapi'

const SECONDS_MAX = 1_800
/** A model directory of the largest size over a slow line; the gateway ends one that is slower. */
const KEY_BYTES = 16

export const workspaces = () =>
  queryOptions({ queryKey: ['workspaces'], queryFn: () => answered(api.GET('/api/v1/workspaces')) })

/** Of the whole cluster and of one workspace. */
export const templates = (workspace: string) =>
  queryOptions({
    queryKey: ['templates', workspace],
    queryFn: () => answered(api.GET('/api/v1/templates', { params: { query: { workspace } } })),
  })

/** What the configuration becomes, with its template and the defaults of its workspace, or what is wrong with it. */
export const preview = (config: string) =>
  queryOptions({
    queryKey: ['preview', config],
    queryFn: () => answered(api.POST('/api/v1/preview', { body: { config, overrides: [] } })),
    retry: false,
    staleTime: 0,
    gcTime: 0,
  })

/** For one submission: sent again after a broken connection, it is the same experiment. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(KEY_BYTES))
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/** Throws Refused. */
export async function submit(config: string, context: Blob, key: string): Promise<Submitted> {
  const body = new FormData()
  // As a file, so that line ends stay as they are.
  body.append('config', new Blob([config], { type: 'application/yaml' }), 'config.yaml')
  body.append('context', context, 'context.tar.gz')
  const request = new Request('/api/v1/experiments', {
    method: 'POST',
    credentials: 'same-origin',
    headers: { 'Idempotency-Key': key },
    body,
    signal: AbortSignal.timeout(SECONDS_MAX * 1000),
  })
  const response = await asking(request)
  if (!response.ok) throw refused(response.status, await response.json().catch(() => undefined))
  return (await response.json()) as Submitted
}
