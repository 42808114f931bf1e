/** What the page of the log asks for. */

import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query'
import { askedOf, type EventSearch, type Recorded } from '../lib/eventSearch'
import { answered, api, onward } from './client'

const PAGE_EVENTS = 200

export interface EventPage {
  events: Recorded[]
  before: number | undefined
}

/** Pages of events that fit, the newest first. */
export const foundEvents = (search: EventSearch) =>
  infiniteQueryOptions({
    queryKey: ['events', askedOf(search)],
    initialPageParam: undefined as number | undefined,
    queryFn: async ({ pageParam }): Promise<EventPage> => {
      const query = { ...askedOf(search), limit: PAGE_EVENTS, ...(pageParam !== undefined && { before: pageParam }) }
      const asked = api.GET('/api/v1/events/search', { params: { query } })
      const events = (await answered(asked)) as unknown as Recorded[]
      return { events, before: onward((await asked).response, 'before') }
    },
    getNextPageParam: (page) => page.before,
    staleTime: Number.POSITIVE_INFINITY,
  })

/** Events that fit and are newer than `after`, the newest first. */
export const newerEvents = (search: EventSearch, after: number) =>
  queryOptions({
    queryKey: ['newer events', askedOf(search), after],
    queryFn: async () => {
      const query = { ...askedOf(search), limit: PAGE_EVENTS, after }
      return (await answered(api.GET('/api/v1/events/search', { params: { query } }))) as unknown as Recorded[]
    },
  })

interface Links {
  event: Recorded
  cause: Recorded | null
  followers: Recorded[]
}

export const eventLinks = (position: number) =>
  queryOptions({
    queryKey: ['event links', position],
    queryFn: async () => {
      const params = { path: { position } }
      return (await answered(api.GET('/api/v1/events/{position}/links', { params }))) as unknown as Links
    },
  })
