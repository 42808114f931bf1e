import { Anchor, Paper, Stack, Table, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { useMemo } from 'react'
import type { ExperimentDetail } from '../../api/openapi'
import { lineage } from '../../api/queries'
import { Lineage } from '../../charts/Lineage'
import { type Copy, lineageOf } from '../../lib/lineage'
import { shownNumber } from '../../lib/numbers'
import type { LogEvent } from '../../lib/outdatedQueries'
import { moment } from '../../lib/time'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { TimeSlider } from '../../parts/TimeSlider'

const route = getRouteApi('/experiments/$id')

/** Population-based training: who copied whom, when, and with which hyperparameters changed. */
export function LineageView({ item }: { item: ExperimentDetail }) {
  const query = useQuery(lineage(item.id))
  return <QueryBoundary query={query}>{(events) => <Shown item={item} events={events} />}</QueryBoundary>
}

function Shown({ item, events }: { item: ExperimentDetail; events: LogEvent[] }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const copies = useMemo(() => lineageOf(events, search.at), [events, search.at])
  const picked = search.trial ?? ''
  const pick = (trial: string) =>
    navigate({ search: (before) => ({ ...before, trial: trial === picked ? undefined : trial }), replace: true })
  const told = copies.find((copy) => copy.trial === picked)
  return (
    <Stack>
      <TimeSlider
        events={events}
        at={search.at}
        onChange={(at) => navigate({ search: (before) => ({ ...before, at }), replace: true })}
      />
      {copies.length === 0 ? (
        <Text c="dimmed" py="xl" ta="center">
          No trial was asked for by then.
        </Text>
      ) : (
        <Lineage copies={copies} picked={picked} onPick={pick} />
      )}
      {told !== undefined && <Told copy={told} metric={item.metric} onPick={pick} />}
    </Stack>
  )
}

function Told({ copy, metric, onPick }: { copy: Copy; metric: string; onPick: (trial: string) => void }) {
  return (
    <Paper withBorder p="sm" role="status">
      <Text fw={600}>
        <Anchor component={Link} to={`/trials/${copy.trial}`} inherit underline="always">
          Trial {copy.trial}
        </Anchor>
        , asked for on {moment(copy.time_us)}
      </Text>
      {copy.parent !== undefined && (
        <Text size="sm">
          A copy of{' '}
          <Anchor
            component="button"
            type="button"
            size="sm"
            underline="always"
            onClick={() => onPick(copy.parent ?? '')}
          >
            trial {copy.parent}
          </Anchor>
          {copy.parentMetric !== undefined && `, whose ${metric} was ${shownNumber(copy.parentMetric)}`}
        </Text>
      )}
      {copy.sentences.map((sentence) => (
        <Text key={sentence} size="sm">
          {sentence}
        </Text>
      ))}
      {copy.changed.length > 0 && (
        <Table aria-label="Hyperparameters that were changed" maw={520} mt="xs">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Hyperparameter</Table.Th>
              <Table.Th ta="right">Trial {copy.parent}</Table.Th>
              <Table.Th ta="right">Trial {copy.trial}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {copy.changed.map(({ name, from, to }) => (
              <Table.Tr key={name}>
                <Table.Td>{name}</Table.Td>
                <Table.Td ta="right" style={{ overflowWrap: 'anywhere' }}>
                  {from}
                </Table.Td>
                <Table.Td ta="right" style={{ overflowWrap: 'anywhere' }}>
                  {to}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Paper>
  )
}
