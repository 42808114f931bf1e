/** What the page asks about one trial. Keys begin as those of its experiment, so that what makes these out of date does the same here. */

import { queryOptions } from '@tanstack/react-query'
import { answered, api } from './client'
import type { MetricPointView } from './openapi'

const RUNS_MAX = 200
const CHECKPOINTS_MAX = 1000
const VALIDATIONS_MAX = 10_000
const POINTS_PAGE = 10_000
const POINTS_MAX = 200_000
const POINTS_REFRESH_MS = 3000

const of = (id: string) => ({ params: { path: { trial_id: id } } })

export const trial = (experiment: number, id: string) =>
  queryOptions({
    queryKey: ['trials', experiment, id],
    queryFn: () => answered(api.GET('/api/v1/trials/{trial_id}', of(id))),
  })

export const trialValidations = (experiment: number, id: string) =>
  queryOptions({
    queryKey: ['validations', experiment, id],
    queryFn: () =>
      answered(
        api.GET('/api/v1/trials/{trial_id}/validations', {
          params: { path: { trial_id: id }, query: { limit: VALIDATIONS_MAX } },
        }),
      ),
  })

export interface TrainingPoints {
  points: MetricPointView[]
  /** True: there are more points than are shown. */
  more: boolean
}

/** Training metrics, which are not in the log: while the trial runs, what is new is asked for every few seconds. A trial that starts
 * again may measure batches anew, so then (`starts`) all of it is read again. */
export const trainingPoints = (experiment: number, id: string, starts: number, live: boolean) => {
  const queryKey = ['points', experiment, id, starts]
  return queryOptions({
    queryKey,
    queryFn: async ({ client }): Promise<TrainingPoints> => {
      const points = [...(client.getQueryData<TrainingPoints>(queryKey)?.points ?? [])]
      for (;;) {
        const after = points.at(-1)?.batches ?? -1
        const asked = api.GET('/api/v1/trials/{trial_id}/metrics', {
          params: { path: { trial_id: id }, query: { after, limit: POINTS_PAGE } },
        })
        const page = await answered(asked)
        points.push(...page)
        const more = (await asked).response.headers.get('Tenuto-More') === 'true'
        if (!more || points.length >= POINTS_MAX) return { points, more }
      }
    },
    refetchInterval: live ? POINTS_REFRESH_MS : false,
  })
}

export const runs = (experiment: number, id: string) =>
  queryOptions({
    queryKey: ['trials', experiment, id, 'runs'],
    queryFn: async () => {
      const query = { experiment, trial: id, live: false, limit: RUNS_MAX }
      const found = await answered(api.GET('/api/v1/allocations', { params: { query } }))
      return found.reverse()
    },
  })

export const checkpoints = (experiment: number, id: string) =>
  queryOptions({
    queryKey: ['trials', experiment, id, 'checkpoints'],
    queryFn: () => {
      const query = { experiment, trial: id, deleted: true, limit: CHECKPOINTS_MAX }
      return answered(api.GET('/api/v1/checkpoints', { params: { query } }))
    },
  })

export const checkpoint = (id: string) =>
  queryOptions({
    queryKey: ['checkpoint', id],
    queryFn: () =>
      answered(api.GET('/api/v1/checkpoints/{checkpoint_id}', { params: { path: { checkpoint_id: id } } })),
  })

export const record = (experiment: number, id: string) =>
  queryOptions({
    queryKey: ['trials', experiment, id, 'record'],
    queryFn: () => answered(api.GET('/api/v1/trials/{trial_id}/record', of(id))),
  })
