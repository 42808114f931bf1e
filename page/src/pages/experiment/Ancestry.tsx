import { Anchor, Group, Text } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Fragment } from 'react'
import type { ExperimentDetail } from '../../api/openapi'
import { children, experiment } from '../../api/queries'
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

/** What was made from an experiment, the newest first. */
export function Children({ item }: { item: ExperimentDetail }) {
  const found = useQuery(children(item.id)).data
  if (found === undefined || found.list.length === 0) return null
  const more = found.total - found.list.length
  return (
    <Group component="nav" gap="sm" aria-label="Made from this experiment">
      <Text size="sm" c="dimmed">
        Made from this one:
      </Text>
      {found.list.map(({ id, name }) => (
        <Anchor key={id} component={Link} to={`/experiments/${id}`} size="sm">
          {id} {name}
        </Anchor>
      ))}
      {more > 0 && (
        <Text size="sm" c="dimmed">
          and {more} more
        </Text>
      )}
    </Group>
  )
}
