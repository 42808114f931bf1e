import { queryOptions } from '@tanstack/react-query'
import { answered, api } from './client'
import type { ExperimentDetail, TrialView, ValidationView } from './openapi'

const VALIDATIONS_MAX = 10_000

export interface Compared {
  /** As it was asked for: an experiment or a trial. */
  reference: string
  experiment: ExperimentDetail
  /** The trial itself, or the best one of the experiment; null where it has none yet. */
  trial: TrialView | null
  validations: ValidationView[]
}

/** One experiment or trial with its curve. */
export const compared = (reference: string) => {
  const [experiment, trial] = [Number(reference.split('-')[0]), reference.includes('-') ? reference : undefined]
  return queryOptions({
    queryKey: ['trials', experiment, reference, 'compared'],
    queryFn: async (): Promise<Compared> => {
      const found = await answered(
        api.GET('/api/v1/experiments/{experiment_id}', { params: { path: { experiment_id: experiment } } }),
      )
      const id = trial ?? found.best_trial_id
      if (id == null) return { reference, experiment: found, trial: null, validations: [] }
      const path = { trial_id: id }
      const [one, validations] = await Promise.all([
        answered(api.GET('/api/v1/trials/{trial_id}', { params: { path } })),
        answered(
          api.GET('/api/v1/trials/{trial_id}/validations', { params: { path, query: { limit: VALIDATIONS_MAX } } }),
        ),
      ])
      return { reference, experiment: found, trial: one, validations }
    },
  })
}
