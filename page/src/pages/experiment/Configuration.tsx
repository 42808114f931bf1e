import { Anchor, Paper, Stack, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { differences } from '../../api/experiments'
import type { ExperimentDetail } from '../../api/openapi'
import { Differences } from '../../parts/Differences'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { Ancestry, Children } from './Ancestry'
import { LazyConfiguration } from './LazyConfiguration'

/** The configuration on record, and what differs from the experiment that it was made from. */
export function Configuration({ item }: { item: ExperimentDetail }) {
  return (
    <Stack>
      {item.parent_id && <Ancestry item={item} />}
      <Children item={item} />
      {item.parent_id && <FromParent item={item} parent={item.parent_id} />}
      <LazyConfiguration config={item.config} />
    </Stack>
  )
}

function FromParent({ item, parent }: { item: ExperimentDetail; parent: string }) {
  const trial = parent.includes('-')
  const query = useQuery(differences(parent, trial ? `${item.id}-1` : String(item.id)))
  return (
    <Paper withBorder p="sm">
      <Title order={2} size="h4" pb="xs">
        What differs from{' '}
        <Anchor component={Link} to={trial ? `/trials/${parent}` : `/experiments/${parent}`} inherit>
          {parent}
        </Anchor>
      </Title>
      <QueryBoundary query={query}>{(found) => <Differences found={found} />}</QueryBoundary>
    </Paper>
  )
}
