/** What the page of nodes asks for. Keys begin with `nodes`, so that whatever happens to one brings all of them up to date. */

import { queryOptions } from '@tanstack/react-query'
import { answered, api } from './client'

export const nodes = () =>
  queryOptions({ queryKey: ['nodes', 'list'], queryFn: () => answered(api.GET('/api/v1/nodes')) })

/** Pools whose nodes a provisioner starts. */
export const provisionedPools = () =>
  queryOptions({ queryKey: ['nodes', 'pools'], queryFn: () => answered(api.GET('/api/v1/pools')) })

/** One of them, with what comes for whom and why nothing more does. */
export const provisionedPool = (pool: string) =>
  queryOptions({
    queryKey: ['nodes', 'pool', pool],
    queryFn: () => answered(api.GET('/api/v1/pools/{pool}/provisioning', { params: { path: { pool } } })),
  })

/** What the node's agent or its boot has printed; its provider is asked, so only by who opens it. */
export const nodeLogs = (node: string) =>
  queryOptions({
    queryKey: ['node logs', node],
    queryFn: () => answered(api.GET('/api/v1/nodes/{node_id}/logs', { params: { path: { node_id: node } } })),
    retry: false,
  })
