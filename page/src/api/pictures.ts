/** Training metrics of an experiment's trials for a picture. They are not in the log, so they are followed by a cursor of their own. */

import { queryOptions } from '@tanstack/react-query'
import { type Answer, followed, type Pictures } from '../lib/pictures'
import { answered, api } from './client'

const REFRESH_MS = 2000
/** Pause between two questions while trials run: an answer has only what is new. */

/** `metrics`: without any, only their names are asked for. */
export const pictures = (experiment: number, metrics: readonly string[], live: boolean, trials?: string) => {
  const names = metrics.map((name) => `"${name.replaceAll('"', '""')}"`).join(',')
  const queryKey = ['pictures', experiment, names, trials ?? '']
  return queryOptions({
    queryKey,
    queryFn: async ({ client }): Promise<Pictures> => {
      const before = client.getQueryData<Pictures>(queryKey)
      const query = { metrics: names, times: true, ...(trials && { trials }), ...(before && { cursor: before.cursor }) }
      const path = { experiment_id: experiment }
      const asked = api.GET('/api/v1/experiments/{experiment_id}/metrics/curves', { params: { path, query } })
      return followed(before, (await answered(asked)) as Answer)
    },
    structuralSharing: false,
    refetchInterval: live ? REFRESH_MS : false,
  })
}
