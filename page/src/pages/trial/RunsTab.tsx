import { Alert, Paper, ScrollArea, Stack, Table, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import type { TrialView } from '../../api/openapi'
import { checkpoints, runs } from '../../api/trials'
import { Runs } from '../../charts/Runs'
import { type Run, type Saved, stepsOf } from '../../lib/runs'
import { moment } from '../../lib/time'
import { QueryBoundary } from '../../parts/QueryBoundary'

const route = getRouteApi('/trials/$id')
const TICK_MS = 1000

export function RunsTab({ item }: { item: TrialView }) {
  const found = useQuery(runs(item.experiment_id, item.id))
  const saved = useQuery(checkpoints(item.experiment_id, item.id))
  return (
    <QueryBoundary query={found}>{(list) => <Shown item={item} runs={list} saved={saved.data ?? []} />}</QueryBoundary>
  )
}

function Shown({ item, runs, saved }: { item: TrialView; runs: Run[]; saved: Saved[] }) {
  const now = useNow(item.allocation_id !== null)
  const picked = route.useSearch().run ?? ''
  const navigate = route.useNavigate()
  if (runs.length === 0)
    return (
      <Text c="dimmed" py="xl" ta="center">
        The trial has not been granted slots yet. {item.reason}
      </Text>
    )
  const shown = runs.filter((run) => picked === '' || run.id === picked)
  return (
    <Stack>
      {runs.length < item.allocations && (
        <Alert color="gray">
          The last {runs.length} of {item.allocations} runs are shown.
        </Alert>
      )}
      <Paper withBorder p="sm">
        <Runs
          runs={runs}
          checkpoints={saved}
          now={now}
          picked={picked}
          onPick={(run) =>
            navigate({ search: (before) => ({ ...before, run: run === picked ? undefined : run }), replace: true })
          }
        />
      </Paper>
      <ScrollArea viewportProps={{ tabIndex: 0 }}>
        <Table aria-label="Steps of the runs" miw={560}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Time</Table.Th>
              <Table.Th>Run</Table.Th>
              <Table.Th>Step</Table.Th>
              <Table.Th>What happened</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {shown.flatMap((run) =>
              stepsOf(run, saved).map((step) => (
                <Table.Tr key={`${run.id} ${step.name}`}>
                  <Table.Td style={{ whiteSpace: 'nowrap' }}>{moment(step.time_us)}</Table.Td>
                  <Table.Td>{runs.indexOf(run) + 1}</Table.Td>
                  <Table.Td>{step.name}</Table.Td>
                  <Table.Td style={{ overflowWrap: 'anywhere' }}>{step.text}</Table.Td>
                </Table.Tr>
              )),
            )}
          </Table.Tbody>
        </Table>
      </ScrollArea>
    </Stack>
  )
}

/** Microseconds since 1970, growing each second where something goes on. */
function useNow(live: boolean): number {
  const [now, setNow] = useState(() => Date.now() * 1000)
  useEffect(() => {
    if (!live) return
    const timer = setInterval(() => setNow(Date.now() * 1000), TICK_MS)
    return () => clearInterval(timer)
  }, [live])
  return now
}
