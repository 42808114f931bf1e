import { Anchor, Group, Text } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Fragment } from 'react'
import type { ExperimentDetail } from '../../api/openapi'
import { experiment } from '../../api/queries'
import { ancestryOf } from '../../lib/ancestry'

/** What an experiment was made from, back to the first, each with a link. */
export function Ancestry({ item }: { item: ExperimentDetail }) {
  const client = useQueryClient()
  const query = useQuery({
    queryKey: ['ancestry', item.id],
    queryFn: () => ancestryOf(item, (id) => client.fetchQuery({ ...experiment(id), staleTime: 60_000 })),
    staleTime: Number.POSITIVE_INFINITY,
  })
  if (query.data === undefined || query.data.length === 0) return null
  return (
    <Group component="nav" gap={6} aria-label="Ancestry">
      {query.data.map(({ id, relation }) => (
        <Fragment key={id}>
          <Anchor component={Link} to={id.includes('-') ? `/trials/${id}` : `/experiments/${id}`} size="sm">
            {id}
          </Anchor>
          <Text size="sm" c="dimmed">
            → {relation} →
          </Text>
        </Fragment>
      ))}
      <Text size="sm">{item.id}</Text>
    </Group>
  )
}
