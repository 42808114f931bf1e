import { Group, SegmentedControl, Stack, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { events, type KnownEvents, QUEUE, useEarlier } from '../../api/cluster'
import type { PoolQueue } from '../../api/openapi'
import { usePastQueue } from '../../api/past'
import { queue } from '../../api/queries'
import { moment } from '../../lib/time'
import { LoadEarlier } from '../../parts/LoadEarlier'
import { PastBoundary } from '../../parts/PastBoundary'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { TimeSlider } from '../../parts/TimeSlider'
import { Order } from './Order'
import { WhatIf } from './WhatIf'

const REFRESH_MS = 10_000
/** Expected times and reasons change without an event, too. */
const route = getRouteApi('/queue')

export function QueuePage() {
  const { at } = route.useSearch()
  const query = useQuery({ ...queue(), refetchInterval: REFRESH_MS })
  const then = usePastQueue(at)
  const seen = useQuery(events(QUEUE))
  return (
    <Stack>
      <Title order={1} size="h2">
        Queue
      </Title>
      {seen.data !== undefined && <Time seen={seen.data} />}
      {at === undefined ? (
        <>
          <Text size="sm" c="dimmed">
            Who has slots and who waits, in order. Drag a row by its handle, or focus the handle and press ↑ or ↓: the
            experiment takes over the priority of the one beside which it then stands.
          </Text>
          <QueryBoundary query={query}>{(found) => <Chosen pools={found.pools} />}</QueryBoundary>
        </>
      ) : (
        <PastBoundary query={then}>
          {(found) => (
            <>
              <Text size="sm" c="dimmed" role="status">
                Who had slots and who waited{found.time_us == null ? '' : ` on ${moment(found.time_us)}`}, at position{' '}
                {found.position} of the log.
              </Text>
              <Chosen pools={found.pools} frozen />
            </>
          )}
        </PastBoundary>
      )}
    </Stack>
  )
}

function Time({ seen }: { seen: KnownEvents }) {
  const { at } = route.useSearch()
  const navigate = route.useNavigate()
  const earlier = useEarlier(QUEUE)
  return (
    <Stack gap={4}>
      <TimeSlider
        events={seen.events}
        at={at}
        onChange={(moved) => navigate({ search: (before) => ({ ...before, at: moved }), replace: true })}
      />
      <Group justify="flex-end">
        <LoadEarlier before={seen.before} onMore={earlier} />
      </Group>
    </Stack>
  )
}

function Chosen({ pools, frozen = false }: { pools: PoolQueue[]; frozen?: boolean }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const shown = pools.filter((pool) => pool.agents > 0 || pool.rows.length > 0 || pool.pool === search.pool)
  const pool = shown.find((found) => found.pool === search.pool) ?? shown[0]
  if (search.pool !== undefined && pool?.pool !== search.pool)
    return <Text c="dimmed">There is no pool {search.pool}.</Text>
  if (pool === undefined) return <Text c="dimmed">No pool has agents or experiments.</Text>
  return (
    <Stack>
      {shown.length > 1 && (
        <SegmentedControl
          aria-label="Pool"
          style={{ alignSelf: 'flex-start', maxWidth: '100%', overflowX: 'auto' }}
          data={shown.map((found) => found.pool)}
          value={pool.pool}
          onChange={(name) => navigate({ search: (before) => ({ ...before, pool: name }), replace: true })}
        />
      )}
      <Text size="sm">
        Pool {pool.pool} shares by {pool.policy.replace('_', ' ')}: {pool.free} of {pool.capacity} slots free
        {pool.leaving > 0 && `, ${pool.leaving} being freed`}.
      </Text>
      <Order key={pool.pool} pool={pool} frozen={frozen} />
      <WhatIf pool={pool.pool} />
    </Stack>
  )
}
