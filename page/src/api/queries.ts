/** What the page asks for, as queries of TanStack Query. A key begins with the noun that live events name, see live.ts. */

import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import type { asked } from '../lib/filters'
import { LINEAGE_TYPES } from '../lib/lineage'
import { trialNumber } from '../lib/numbers'
import type { LogEvent } from '../lib/outdatedQueries'
import { STORY_TYPES, slim } from '../lib/pastExperiment'
import { DECISIONS } from '../lib/rungs'
import { answered, api, onward, pages } from './client'
import type { paths, TrialView, ValidationView } from './openapi'

const TRIALS_PAGE = 1000
export const TRIALS_MAX = 20_000
/** More than can be told apart in any picture; a table of more is no table. */
const VALIDATIONS_PAGE = 10_000
const VALIDATIONS_MAX = 200_000

async function listed(query: NonNullable<paths['/api/v1/experiments']['get']['parameters']['query']>) {
  const found = api.GET('/api/v1/experiments', { params: { query } })
  const list = await answered(found)
  return { list, total: Number((await found).response.headers.get('Tenuto-Total') ?? list.length) }
}

/** Experiments that fit, the newest first, and how many there are in all. */
export const experiments = (query: ReturnType<typeof asked>) =>
  queryOptions({
    queryKey: ['experiments', query],
    queryFn: () => listed(query),
    placeholderData: keepPreviousData,
  })

export const experiment = (id: number) =>
  queryOptions({
    queryKey: ['experiment', id],
    queryFn: () =>
      answered(api.GET('/api/v1/experiments/{experiment_id}', { params: { path: { experiment_id: id } } })),
  })

const CHILDREN_MAX = 20

/** The newest that were made from an experiment, also archived ones, and how many there are in all. */
export const children = (id: number) => {
  const query = { parent: id, archived: true, limit: CHILDREN_MAX, total: true }
  return queryOptions({ queryKey: ['experiments', 'children', id], queryFn: () => listed(query) })
}

/** All trials, page by page. */
export const trials = (id: number) =>
  queryOptions({
    queryKey: ['trials', id],
    queryFn: () =>
      pages(TRIALS_MAX, (last?: TrialView) =>
        api.GET('/api/v1/experiments/{experiment_id}/trials', {
          params: { path: { experiment_id: id }, query: { limit: TRIALS_PAGE, after: last?.number ?? 0 } },
        }),
      ),
  })

/** All validations of all trials, page by page. */
export const validations = (id: number) =>
  queryOptions({
    queryKey: ['validations', id],
    queryFn: () =>
      pages(VALIDATIONS_MAX, (last?: ValidationView) =>
        api.GET('/api/v1/experiments/{experiment_id}/validations', {
          params: {
            path: { experiment_id: id },
            query: {
              limit: VALIDATIONS_PAGE,
              ...(last && { after_trial: trialNumber(last.trial_id), after_batches: last.batches }),
            },
          },
        }),
      ),
  })

export const agents = () => queryOptions({ queryKey: ['agents'], queryFn: () => answered(api.GET('/api/v1/agents')) })

export const queue = () => queryOptions({ queryKey: ['queue'], queryFn: () => answered(api.GET('/api/v1/jobs')) })

export const status = () => queryOptions({ queryKey: ['status'], queryFn: () => answered(api.GET('/api/v1/status')) })

const EVENTS_PAGE = 5000
export const STORY_MAX = 100_000
/** Events of one experiment that the page keeps: some 50 MB. */

/** All events of some types of one experiment, with the sentences for people. The first answer is whole, a later one only asks for
 * what is new. */
const recorded = (
  queryKey: readonly ['decisions' | 'experiment', number, string],
  types: readonly string[],
  kept = (event: LogEvent) => event,
) =>
  queryOptions({
    queryKey,
    queryFn: async ({ client }) => {
      const id = queryKey[1]
      const found = [...(client.getQueryData<LogEvent[]>(queryKey) ?? [])]
      let after: number | undefined = found.at(-1)?.position ?? 0
      while (after !== undefined && found.length < STORY_MAX) {
        const query = { experiment: id, type: types.join(','), after, limit: EVENTS_PAGE }
        const asked = api.GET('/api/v1/events', { params: { query } })
        for (const event of (await answered(asked)) as unknown as LogEvent[]) found.push(kept(event))
        after = onward((await asked).response, 'after')
      }
      return found
    },
    structuralSharing: false,
  })

export const decisions = (id: number) => recorded(['decisions', id, 'rungs'], DECISIONS)
export const lineage = (id: number) => recorded(['decisions', id, 'lineage'], LINEAGE_TYPES)
/** What the experiment and its trials were at each moment. */
export const story = (id: number) => recorded(['experiment', id, 'story'], STORY_TYPES, slim)
