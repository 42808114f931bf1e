import { Stack, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { status } from '../../api/queries'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { NewForm } from './NewForm'

/** A new experiment: the model directory and the configuration. */
export function NewPage() {
  const cluster = useQuery({ ...status(), staleTime: Number.POSITIVE_INFINITY })
  const tools = useQuery({
    queryKey: ['configText'],
    queryFn: () => import('../../lib/configText'),
    staleTime: Number.POSITIVE_INFINITY,
  })
  return (
    <Stack>
      <Title order={1} size="h2">
        New experiment
      </Title>
      <Text size="sm" c="dimmed">
        The directory with the model's code, and the configuration. The same from a terminal: tenuto exp create
        config.yaml DIR
      </Text>
      <QueryBoundary query={cluster}>
        {({ context_bytes_max }) => (
          <QueryBoundary query={tools}>
            {(found) => <NewForm bytesMax={context_bytes_max} tools={found} />}
          </QueryBoundary>
        )}
      </QueryBoundary>
    </Stack>
  )
}
