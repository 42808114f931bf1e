/** What the page asks for, as queries of TanStack Query. A key begins with the noun that live events name, see live.ts. */

import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import type { asked } from '../lib/filters'
import { type Copy, copiesOf } from '../lib/lineage'
import { trialNumber } from '../lib/numbers'
import { type Rung, rungsOf } from '../lib/rungs'
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

export const fetchExperiment = (id: number, at?: number) =>
  answered(api.GET('/api/v1/experiments/{experiment_id}', then(id, at)))

export const experiment = (id: number) =>
  queryOptions({ queryKey: ['experiment', id], queryFn: () => fetchExperiment(id) })

const CHILDREN_MAX = 20

/** The newest that were made from an experiment, also archived ones, and how many there are in all. */
export const children = (id: number) => {
  const query = { parent: id, archived: true, limit: CHILDREN_MAX, total: true }
  return queryOptions({ queryKey: ['experiments', 'children', id], queryFn: () => listed(query) })
}

/** All trials, page by page. */
export const fetchTrials = (id: number, at?: number) =>
  pages(TRIALS_MAX, (last?: TrialView) => {
    const { path, query } = then(id, at).params
    const params = { path, query: { ...query, limit: TRIALS_PAGE, after: last?.number ?? 0 } }
    return api.GET('/api/v1/experiments/{experiment_id}/trials', { params })
  })

export const trials = (id: number) => queryOptions({ queryKey: ['trials', id], queryFn: () => fetchTrials(id) })

/** All validations of all trials, page by page. */
export const fetchValidations = (id: number, at?: number) =>
  pages(VALIDATIONS_MAX, (last?: ValidationView) => {
    const { path, query } = then(id, at).params
    const from = last && { after_trial: trialNumber(last.trial_id), after_batches: last.batches }
    const params = { path, query: { ...query, limit: VALIDATIONS_PAGE, ...from } }
    return api.GET('/api/v1/experiments/{experiment_id}/validations', { params })
  })

export const validations = (id: number) =>
  queryOptions({ queryKey: ['validations', id], queryFn: () => fetchValidations(id) })

/** Trials by the search's metric and a second one, those marked that no other one beats in both. */
export const front = (id: number, second: string, smaller: boolean) =>
  queryOptions({
    queryKey: ['validations', id, 'front', second, smaller],
    queryFn: () => {
      const query = { second, second_smaller_is_better: smaller, all: true }
      const params = { path: { experiment_id: id }, query }
      return answered(api.GET('/api/v1/experiments/{experiment_id}/pareto', { params }))
    },
    placeholderData: keepPreviousData,
  })

export const agents = () => queryOptions({ queryKey: ['agents'], queryFn: () => answered(api.GET('/api/v1/agents')) })

export const queue = () => queryOptions({ queryKey: ['queue'], queryFn: () => answered(api.GET('/api/v1/jobs')) })

export const status = () => queryOptions({ queryKey: ['status'], queryFn: () => answered(api.GET('/api/v1/status')) })

export const MOMENTS_MAX = 100_000
/** Moments of one experiment that the slider reaches over: more than it has places. */

export interface Moment {
  position: number
  time_us: number
}

/** Moments at which something changed, or only those of the search's decisions. The first answer is whole, a later one only asks for
 * what is new. */
export const moments = (id: number, of: 'all' | 'decisions') => {
  const queryKey = [of === 'all' ? 'experiment' : 'decisions', id, 'moments'] as const
  return queryOptions({
    queryKey,
    queryFn: async ({ client }) => {
      const found = [...(client.getQueryData<Moment[]>(queryKey) ?? [])]
      let after: number | undefined = found.at(-1)?.position ?? 0
      while (after !== undefined && found.length < MOMENTS_MAX) {
        const params = { path: { experiment_id: id }, query: { of, after } }
        const asked = api.GET('/api/v1/experiments/{experiment_id}/moments', { params })
        const { positions, times_us } = await answered(asked)
        for (const [index, position] of positions.entries()) found.push({ position, time_us: times_us[index] ?? 0 })
        after = onward((await asked).response, 'after')
      }
      return found
    },
    structuralSharing: false,
  })
}

const then = (id: number, at: number | undefined) => ({
  params: { path: { experiment_id: id }, query: at === undefined ? {} : { at } },
})

/** Without `at`: now. The same below. */
export const fetchRungs = async (id: number, at?: number): Promise<Rung[]> =>
  rungsOf(await answered(api.GET('/api/v1/experiments/{experiment_id}/rungs', then(id, at))))

export const fetchLineage = async (id: number, at?: number): Promise<Copy[]> =>
  copiesOf(await answered(api.GET('/api/v1/experiments/{experiment_id}/lineage', then(id, at))))

export const rungs = (id: number) =>
  queryOptions({ queryKey: ['decisions', id, 'rungs'], queryFn: () => fetchRungs(id) })

export const lineage = (id: number) =>
  queryOptions({ queryKey: ['decisions', id, 'lineage'], queryFn: () => fetchLineage(id) })
