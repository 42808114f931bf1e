import { Button, Grid, Group, Stack, Text, Title } from '@mantine/core'
import { type InfiniteData, useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { useMemo } from 'react'
import { type EventPage, foundEvents, newerEvents } from '../../api/events'
import type { EventSearch } from '../../lib/eventSearch'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { EventDetail } from './EventDetail'
import { EventFilters } from './EventFilters'
import { EventList } from './EventList'

const REFRESH_MS = 3_000
const route = getRouteApi('/events')

export function EventsPage() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (changed: Partial<EventSearch>) =>
    navigate({ search: (before) => ({ ...before, ...changed }), replace: true })
  const query = useInfiniteQuery(foundEvents(search))
  return (
    <Stack>
      <Title order={1} size="h2">
        Events
      </Title>
      <EventFilters search={search} onChange={change} />
      <Grid>
        <Grid.Col span={{ base: 12, lg: search.event === undefined ? 12 : 7 }}>
          <QueryBoundary query={query}>
            {(data) => (
              <Found
                data={data}
                search={search}
                picked={search.event}
                onPick={(event) => change({ event: event === search.event ? undefined : event })}
                more={query.hasNextPage}
                busy={query.isFetchingNextPage}
                onMore={() => void query.fetchNextPage()}
              />
            )}
          </QueryBoundary>
        </Grid.Col>
        {search.event !== undefined && (
          <Grid.Col span={{ base: 12, lg: 5 }}>
            <EventDetail position={search.event} onPick={(event) => change({ event })} />
          </Grid.Col>
        )}
      </Grid>
    </Stack>
  )
}

interface FoundProps {
  data: InfiniteData<EventPage>
  search: EventSearch
  picked: number | undefined
  onPick: (position: number) => void
  more: boolean
  busy: boolean
  onMore: () => void
}

function Found({ data, search, picked, onPick, more, busy, onMore }: FoundProps) {
  const events = useMemo(() => data.pages.flatMap((page) => page.events), [data])
  return (
    <Stack gap="xs">
      <News search={search} after={events[0]?.position ?? 0} />
      <EventList
        events={events}
        picked={picked}
        onPick={onPick}
        onEnd={more && !busy && events.length > 0 ? onMore : undefined}
      />
      <Group>
        <Text size="sm" c="dimmed" role="status">
          {events.length} shown{more ? '' : ': that is all'}
        </Text>
        {more && (
          <Button size="compact-sm" variant="default" loading={busy} onClick={onMore}>
            Look further back
          </Button>
        )}
      </Group>
    </Stack>
  )
}

/** Says that something newer fits; who reads further down is not moved by it. */
function News({ search, after }: { search: EventSearch; after: number }) {
  const client = useQueryClient()
  const newer = useQuery({ ...newerEvents(search, after), refetchInterval: REFRESH_MS, staleTime: 0 })
  const found = newer.data ?? []
  if (found.length === 0) return null
  const show = () => client.resetQueries(foundEvents(search))
  return (
    <Button size="compact-sm" variant="light" onClick={show} style={{ alignSelf: 'flex-start' }}>
      Show {found.length < 200 ? found.length : '200 or more'} newer
    </Button>
  )
}
