import { Alert, Button, Center, Loader, Stack } from '@mantine/core'
import type { UseQueryResult } from '@tanstack/react-query'
import type { ReactNode } from 'react'

interface Props<T> {
  query: UseQueryResult<T>
  children: (data: T) => ReactNode
}

/** The three states of what was asked for: loading, refused with the gateway's sentence, and there. */
export function QueryBoundary<T>({ query, children }: Props<T>) {
  if (query.data !== undefined) return <>{children(query.data)}</>
  if (query.error !== null)
    return (
      <Alert color="red" title="This could not be shown" role="alert">
        <Stack align="flex-start" gap="xs">
          {query.error.message}
          <Button size="compact-sm" variant="light" color="red" onClick={() => query.refetch()}>
            Try again
          </Button>
        </Stack>
      </Alert>
    )
  return (
    <Center p="xl">
      <Loader role="status" aria-label="Loading" />
    </Center>
  )
}
