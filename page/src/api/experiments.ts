/** What the pages ask about experiments beyond their numbers: code, importance, differences, spark lines. */

import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { answered, api } from './client'

const of = (id: number) => ({ params: { path: { experiment_id: id } } })

/** Takes seconds, so it is not asked again by itself. */
export const importance = (id: number) =>
  queryOptions({
    queryKey: ['importance', id],
    queryFn: () => answered(api.GET('/api/v1/experiments/{experiment_id}/importance', of(id))),
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  })

export const files = (id: number) =>
  queryOptions({
    queryKey: ['files', id],
    queryFn: () => answered(api.GET('/api/v1/experiments/{experiment_id}/files', of(id))),
    staleTime: Number.POSITIVE_INFINITY,
  })

export const fileContent = (id: number, path: string) =>
  queryOptions({
    queryKey: ['files', id, path],
    queryFn: () =>
      answered(
        api.GET('/api/v1/experiments/{experiment_id}/files/content', {
          params: { path: { experiment_id: id }, query: { path } },
        }),
      ),
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: keepPreviousData,
  })

/** Of two experiments or trials. */
export const differences = (a: string, b: string) =>
  queryOptions({
    queryKey: ['differences', a, b],
    queryFn: () => answered(api.GET('/api/v1/diff', { params: { query: { a, b } } })),
  })

export const sparks = (ids: readonly number[]) =>
  queryOptions({
    queryKey: ['experiments', 'sparks', ...ids],
    queryFn: () => answered(api.GET('/api/v1/sparks', { params: { query: { experiments: ids.join(',') } } })),
    enabled: ids.length > 0,
    placeholderData: keepPreviousData,
  })
