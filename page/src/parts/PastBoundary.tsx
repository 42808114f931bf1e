import { Text } from '@mantine/core'
import type { UseQueryResult } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { QueryBoundary } from './QueryBoundary'

interface Props<T> {
  query: UseQueryResult<T>
  children: (data: T) => ReactNode
}

/** As QueryBoundary, for an earlier moment: while a long log is read the gateway says how far it is. */
export function PastBoundary<T>({ query, children }: Props<T>) {
  return (
    <>
      {query.isFetching && query.failureReason !== null && (
        <Text size="sm" c="dimmed" role="status">
          {query.failureReason.message}
        </Text>
      )}
      <QueryBoundary query={query}>{children}</QueryBoundary>
    </>
  )
}
