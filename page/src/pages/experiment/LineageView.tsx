import { Anchor, Paper, Stack, Table, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import type { ExperimentDetail } from '../../api/openapi'
import { usePastLineage } from '../../api/past'
import { lineage } from '../../api/queries'
import { Lineage } from '../../charts/Lineage'
import type { Copy } from '../../lib/lineage'
import { shownNumber } from '../../lib/numbers'
import { moment } from '../../lib/time'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { DecisionSlider } from './DecisionSlider'

const route = getRouteApi('/experiments/$id')

/** Population-based training: who copied whom, when, and with which hyperparameters changed. */
export function LineageView({ item }: { item: ExperimentDetail }) {
  const at = route.useSearch().at
  const now = useQuery({ ...lineage(item.id), enabled: at === undefined })
  const then = usePastLineage(item.id, at)
  return (
    <Stack>
      <DecisionSlider id={item.id} />
      <QueryBoundary query={at === undefined ? now : then}>
        {(copies) => <Shown item={item} copies={copies} />}
      </QueryBoundary>
    </Stack>
  )
}

function Shown({ item, copies }: { item: ExperimentDetail; copies: Copy[] }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const picked = search.trial ?? ''
  const pick = (trial: string) =>
    navigate({ search: (before) => ({ ...before, trial: trial === picked ? undefined : trial }), replace: true })
  const told = copies.find((copy) => copy.trial === picked)
  return (
    <Stack>
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
