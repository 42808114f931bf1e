import { Text } from '@mantine/core'
import type { UseQueryResult } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { Asked } from './Asked'

interface Props<T> {
  query: UseQueryResult<T>
  children: (data: T) => ReactNode
}

/** As Asked, for an earlier moment: while a long log is read the gateway says how far it is. */
export function Then<T>({ query, children }: Props<T>) {
  return (
    <>
      {query.isFetching && query.failureReason !== null && (
        <Text size="sm" c="dimmed" role="status">
          {query.failureReason.message}
        </Text>
      )}
      <Asked query={query}>{children}</Asked>
    </>
  )
}
