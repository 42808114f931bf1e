/** Earlier moments, which never change: each is asked for once. */

import { keepPreviousData, type UseQueryResult, useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import type { Point } from '../lib/curves'
import type { WhatIf } from '../lib/whatIf'
import { answered, api, Refused } from './client'
import type { ExperimentDetail, PastAnswer, QueueAnswer, TrialView, WhatIfAnswer } from './openapi'
import { fetchExperiment, fetchLineage, fetchRungs, fetchTrials, fetchValidations } from './queries'

const RETRIES = 60
const RETRY_MS = 700
/** A long log is read for some seconds before the first answer. */

const BUSY = [429, 503]

const fetchQueue = (at: number): Promise<QueueAnswer> =>
  answered(api.GET('/api/v1/jobs', { params: { query: { at } } }))

const fetchCluster = (at: number): Promise<PastAnswer> =>
  answered(api.GET('/api/v1/cluster', { params: { query: { at } } }))

/** The next moment is asked for when the last one is answered, so that playing the log asks no faster than it is told. */
function usePast<T>(name: string, fetch: (at: number) => Promise<T>, at: number | undefined): UseQueryResult<T> {
  const [asked, setAsked] = useState(at)
  const query = useQuery({
    queryKey: ['past', name, asked],
    queryFn: () => fetch(asked ?? 0),
    enabled: asked !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: keepPreviousData,
    retry: (count, error) => count < RETRIES && error instanceof Refused && BUSY.includes(error.status),
    retryDelay: RETRY_MS,
  })
  const busy = query.isFetching
  useEffect(() => {
    if (!busy) setAsked(at)
  }, [at, busy])
  return query as UseQueryResult<T>
}

export const usePastQueue = (at: number | undefined) => usePast('queue', fetchQueue, at)
export const usePastCluster = (at: number | undefined) => usePast('cluster', fetchCluster, at)

/** An experiment at an earlier moment. */
export interface Past {
  at: number
  item: ExperimentDetail
  trials: TrialView[]
  /** Validations by trial; undefined where nobody asked for them. */
  points: Point[] | undefined
}

async function fetchPast(id: number, at: number, withPoints: boolean): Promise<Past> {
  const points = withPoints ? fetchValidations(id, at) : undefined
  const [item, trials, found] = await Promise.all([fetchExperiment(id, at), fetchTrials(id, at), points])
  return { at, item, trials, points: found as Point[] | undefined }
}

export const usePastExperiment = (id: number, at: number | undefined, withPoints: boolean) =>
  usePast(`experiment ${id} ${withPoints ? 'points' : ''}`, (then) => fetchPast(id, then, withPoints), at)

export const usePastRungs = (id: number, at: number | undefined) =>
  usePast(`rungs ${id}`, (then) => fetchRungs(id, then), at)

export const usePastLineage = (id: number, at: number | undefined) =>
  usePast(`lineage ${id}`, (then) => fetchLineage(id, then), at)

/** What would have happened; nothing is asked for where nothing would differ. The same question again is not simulated again. */
export function useWhatIf(
  pool: string,
  asked: WhatIf | undefined,
  at: number | undefined,
): UseQueryResult<WhatIfAnswer> {
  const query = { ...asked, ...(at === undefined ? {} : { at }) }
  return useQuery({
    queryKey: ['past', 'what-if', pool, query],
    queryFn: () => answered(api.GET('/api/v1/pools/{pool}/what-if', { params: { path: { pool }, query } })),
    enabled: asked !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  })
}
