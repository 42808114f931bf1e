import { Anchor, Group, Paper, Stack, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { useEffect, useMemo, useState } from 'react'
import { allocations, events, type KnownEvents, SLOTS, useEarlier } from '../../api/cluster'
import { provisionedPools } from '../../api/nodes'
import type { AllocationView } from '../../api/openapi'
import { usePastCluster } from '../../api/past'
import { agents, queue } from '../../api/queries'
import { Slots } from '../../charts/Slots'
import type { ClusterSearch } from '../../lib/clusterSearch'
import { slotsPicture, startOf, useOf, withHeld } from '../../lib/slots'
import { duration, moment, secondsBetween } from '../../lib/time'
import { LoadEarlier } from '../../parts/LoadEarlier'
import { PastBoundary } from '../../parts/PastBoundary'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { TimeSlider } from '../../parts/TimeSlider'
import { Agents } from './Agents'
import { PastAgents } from './PastAgents'
import { Pools } from './Pools'
import { Shares } from './Shares'

const TICK_MS = 2_000
const NONE: AllocationView[] = []
const route = getRouteApi('/cluster')

export function ClusterPage() {
  const seen = useQuery(events(SLOTS))
  const known = useQuery(agents())
  const live = useQuery(allocations())
  const waiting = useQuery(queue())
  const provisioned = useQuery(provisionedPools())
  const { at } = route.useSearch()
  const then = usePastCluster(at)
  const picture = <QueryBoundary query={seen}>{(found) => <Use seen={found} held={live.data ?? NONE} />}</QueryBoundary>
  return (
    <Stack>
      <Title order={1} size="h2">
        Cluster
      </Title>
      {at === undefined ? (
        <>
          <QueryBoundary query={waiting}>
            {(found) => <Pools pools={found.pools} provisioned={provisioned.data ?? []} />}
          </QueryBoundary>
          {picture}
          <AgentsTitle />
          <QueryBoundary query={known}>
            {(found) => <Agents agents={found} allocations={live.data ?? []} />}
          </QueryBoundary>
          <QueryBoundary query={waiting}>{(found) => <Shares answer={found} />}</QueryBoundary>
        </>
      ) : (
        <>
          <PastBoundary query={then}>{(found) => <Pools pools={found.queue.pools} />}</PastBoundary>
          {picture}
          <AgentsTitle />
          <QueryBoundary query={then}>
            {(found) => <PastAgents agents={found.agents} more={found.agents_more} />}
          </QueryBoundary>
          <QueryBoundary query={then}>{(found) => <Shares answer={found.queue} />}</QueryBoundary>
        </>
      )}
    </Stack>
  )
}

function AgentsTitle() {
  return (
    <Title order={2} size="h4">
      Agents
    </Title>
  )
}

function useNow(): number {
  const [now, setNow] = useState(() => Date.now() * 1000)
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() * 1000), TICK_MS)
    return () => clearInterval(timer)
  }, [])
  return now
}

function Use({ seen, held }: { seen: KnownEvents; held: AllocationView[] }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const now = useNow()
  const earlier = useEarlier(SLOTS)
  const { at } = search
  const picture = useMemo(() => {
    const found = slotsPicture(seen.events, at)
    return at === undefined ? withHeld(found, held) : found
  }, [seen.events, at, held])
  const change = (changed: Partial<ClusterSearch>) =>
    navigate({ search: (before) => ({ ...before, ...changed }), replace: true })
  const from = startOf(picture)
  const shownEvent = at === undefined ? undefined : seen.events.findLast((event) => event.position <= at)
  const last = seen.events.at(-1)?.time_us ?? 0
  const until = Math.max(shownEvent?.time_us ?? Math.max(now, last), (from ?? 0) + 1_000_000)
  if (picture.rows.length === 0)
    return (
      <Text c="dimmed" py="xl" ta="center">
        No agent has joined yet: trials wait until one offers slots.
      </Text>
    )
  const whole = { from: from ?? until - 60_000_000, until }
  const within =
    search.from !== undefined && search.until !== undefined && search.from < whole.until
      ? { from: search.from, until: search.until }
      : undefined
  const range = within ?? whole
  const used = useOf(picture, range.from, range.until)
  return (
    <Stack gap="xs">
      <Group justify="space-between">
        <Text size="sm" c="dimmed">
          {used === undefined
            ? 'No slot was in service.'
            : `${Math.round(used * 100)} % of the slots' time in service was used in ${duration(secondsBetween(range.from, range.until))}.`}
          {at !== undefined && ` As of ${moment(whole.until)}, position ${at}.`}
        </Text>
        <LoadEarlier before={seen.before} onMore={earlier} />
      </Group>
      <TimeSlider events={seen.events} at={at} onChange={(moved) => change({ at: moved })} />
      <Slots
        picture={picture}
        whole={whole}
        range={within}
        onRange={(found) => change({ from: found?.from, until: found?.until })}
        picked={search.experiment}
        onPick={(experiment) => change({ experiment })}
      />
      {search.experiment !== undefined && (
        <Paper withBorder p="sm" role="status">
          <Anchor component={Link} to={`/experiments/${search.experiment}`} size="sm">
            Experiment {search.experiment}
          </Anchor>
        </Paper>
      )}
    </Stack>
  )
}
