/** Training metrics of an experiment's trials for a picture. They are not in the log, so they are followed by a cursor of their own. */

import { queryOptions } from '@tanstack/react-query'
import { type Answer, followed, type Pictures } from '../lib/pictures'
import { answered, api } from './client'

const REFRESH_MS = 2000
/** Pause between two questions while trials run: an answer has only what is new. */

interface Wanted {
  /** Without any, only their names are asked for. */
  metrics: readonly string[]
  live: boolean
  /** Ids, with commas between; all without. */
  trials?: string
  /** Columns of pixels to which each curve is thinned. */
  points: number
  /** Whether the time of each point is asked for. */
  times: boolean
}

export const pictures = (experiment: number, { metrics, live, trials, points, times }: Wanted) => {
  const names = metrics.map((name) => `"${name.replaceAll('"', '""')}"`).join(',')
  const queryKey = ['pictures', experiment, names, trials ?? '', points, times]
  return queryOptions({
    queryKey,
    queryFn: async ({ client }): Promise<Pictures> => {
      const before = client.getQueryData<Pictures>(queryKey)
      const query = {
        metrics: names,
        times,
        points,
        ...(trials && { trials }),
        ...(before && { cursor: before.cursor }),
      }
      const path = { experiment_id: experiment }
      const asked = api.GET('/api/v1/experiments/{experiment_id}/metrics/curves', { params: { path, query } })
      return followed(before, (await answered(asked)) as Answer)
    },
    structuralSharing: false,
    refetchInterval: live ? REFRESH_MS : false,
  })
}
