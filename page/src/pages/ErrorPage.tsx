import { Alert, Button, Center, Code, Stack, Text } from '@mantine/core'
import { useQueryClient } from '@tanstack/react-query'
import { type ErrorComponentProps, useRouter } from '@tanstack/react-router'

/** In place of a page that cannot be drawn: what is around it stays, and so does the address. */
export function ErrorPage({ error, reset }: ErrorComponentProps) {
  const router = useRouter({ warn: false }) as ReturnType<typeof useRouter> | undefined
  const client = useQueryClient()
  const again = () => {
    client.removeQueries({ type: 'inactive' }) // the answers that could not be drawn
    reset()
    void router?.invalidate() // a part that could not be loaded is asked for again
  }
  return (
    <Alert color="red" title="This page could not be shown" role="alert">
      <Stack align="flex-start" gap="xs">
        <Text size="sm">
          Something on it was not as the page expects; try again, or open another page: what runs on the cluster is not
          touched by it.
        </Text>
        <Code>{error instanceof Error ? error.message : String(error)}</Code>
        <Button size="compact-sm" variant="light" color="red" onClick={again}>
          Try again
        </Button>
      </Stack>
    </Alert>
  )
}

/** The same where what is around every page could not be drawn either. */
export function ErrorPageAlone(props: ErrorComponentProps) {
  return (
    <Center p="xl" component="main">
      <ErrorPage {...props} />
    </Center>
  )
}
