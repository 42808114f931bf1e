/** What the pages of the cluster and the queue ask for. */

import { queryOptions, useQueryClient } from '@tanstack/react-query'
import type { LogEvent } from '../lib/outdatedQueries'
import { QUEUE_TYPES } from '../lib/queue'
import { SLOT_TYPES } from '../lib/slots'
import { answered, api, onward } from './client'

const EVENTS = 2000
/** Events of one request: some hundred allocations, in half a megabyte. */

export const allocations = () =>
  queryOptions({
    queryKey: ['allocations'],
    queryFn: () => answered(api.GET('/api/v1/allocations', { params: { query: { live: true } } })),
  })

export interface KnownEvents {
  /** In the order of the log. */
  events: LogEvent[]
  /** Position below which there may be more; undefined: that is all. */
  before: number | undefined
}

async function eventsOf(types: readonly string[], where: { after?: number; before?: number }): Promise<KnownEvents> {
  const query = { type: types.join(','), limit: EVENTS, ...where }
  const asked = api.GET('/api/v1/events/search', { params: { query } })
  const events = ((await answered(asked)) as unknown as LogEvent[]).reverse()
  return { events, before: onward((await asked).response, 'before') }
}

interface Kind {
  key: readonly string[]
  types: readonly string[]
}

/** Events of slots; those of the queue begin with its key, so that whatever changes it asks for them, too. */
export const SLOTS: Kind = { key: ['slots'], types: SLOT_TYPES }
export const QUEUE: Kind = { key: ['queue', 'events'], types: QUEUE_TYPES }

/** The newest events of a kind. The first answer has many, a later one only what is new. */
export const events = ({ key, types }: Kind) =>
  queryOptions({
    queryKey: key,
    queryFn: async ({ client }): Promise<KnownEvents> => {
      const known = client.getQueryData<KnownEvents>(key)
      const last = known?.events.at(-1)?.position
      if (known === undefined || last === undefined) return eventsOf(types, {})
      const found = await eventsOf(types, { after: last })
      if (found.before !== undefined) return found // too much at once: what is shown begins anew
      return { events: [...known.events, ...found.events], before: known.before }
    },
  })

/** Adds what was before the events that are known. */
export function useEarlier({ key, types }: Kind): () => Promise<void> {
  const client = useQueryClient()
  return async () => {
    const known = client.getQueryData<KnownEvents>(key)
    if (known?.before === undefined) return
    const found = await eventsOf(types, { before: known.before })
    client.setQueryData<KnownEvents>(key, (now) =>
      now === undefined ? now : { events: [...found.events, ...now.events], before: found.before },
    )
  }
}
