import { Group, Select, Stack, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { differences } from '../../api/experiments'
import { Differences } from '../../parts/Differences'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { useChange } from './useChange'

const route = getRouteApi('/compare')

/** All that is recorded and differs between two of the items, the likely cause of other results first. */
export function ComparedDifferences({ references }: { references: string[] }) {
  const search = route.useSearch()
  const change = useChange()
  const known = (item: string | undefined) => (item !== undefined && references.includes(item) ? item : undefined)
  const a = known(search.a) ?? references[0] ?? ''
  const b = known(search.b) ?? references.find((item) => item !== a) ?? ''
  return (
    <Stack gap="sm">
      <Group gap="sm">
        <Title order={2} size="h4">
          What differs between
        </Title>
        <Select
          aria-label="The first"
          w={110}
          size="xs"
          data={references}
          value={a}
          onChange={(item) => change({ a: item ?? undefined })}
        />
        <Text>and</Text>
        <Select
          aria-label="The second"
          w={110}
          size="xs"
          data={references}
          value={b}
          onChange={(item) => change({ b: item ?? undefined })}
        />
      </Group>
      {a === b ? <Text c="dimmed">Pick two different ones.</Text> : <Found a={a} b={b} />}
    </Stack>
  )
}

function Found({ a, b }: { a: string; b: string }) {
  const query = useQuery(differences(a, b))
  return <QueryBoundary query={query}>{(found) => <Differences found={found} />}</QueryBoundary>
}
