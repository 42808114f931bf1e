import { Alert, Button, Group, Modal, SegmentedControl, Select, Stack, Text } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { answered, api } from '../../api/client'
import type { ExperimentDetail, QueueRow } from '../../api/openapi'
import { queue } from '../../api/queries'
import { QueryBoundary } from '../../parts/QueryBoundary'

interface Props {
  item: ExperimentDetail
  onClose: () => void
}

/** A place in the queue, beside another experiment of the pool. */
export function MoveForm({ item, onClose }: Props) {
  const query = useQuery(queue())
  return (
    <Modal opened onClose={onClose} title={`Move ${item.name} in the queue of ${item.pool}`}>
      <QueryBoundary query={query}>
        {(found) => {
          const rows = found.pools.find((pool) => pool.pool === item.pool)?.rows ?? []
          return <Places item={item} others={rows.filter((row) => row.experiment_id !== item.id)} onClose={onClose} />
        }}
      </QueryBoundary>
    </Modal>
  )
}

function Places({ item, others, onClose }: Props & { others: readonly QueueRow[] }) {
  const client = useQueryClient()
  const [other, setOther] = useState<string | null>(others[0] ? String(others[0].experiment_id) : null)
  const [side, setSide] = useState<'ahead_of' | 'behind'>('ahead_of')
  const move = useMutation({
    mutationFn: (id: number) =>
      answered(
        api.POST('/api/v1/jobs/{experiment_id}/move', {
          params: { path: { experiment_id: item.id } },
          body: { [side]: id },
        }),
      ),
    onSuccess: () => {
      for (const queryKey of [['queue'], ['experiment', item.id]]) void client.invalidateQueries({ queryKey })
      onClose()
    },
  })
  if (others.length === 0) return <Text c="dimmed">No other experiment is in the queue of this pool.</Text>
  return (
    <Stack>
      <SegmentedControl
        aria-label="Place"
        value={side}
        onChange={(value) => setSide(value as typeof side)}
        data={[
          { value: 'ahead_of', label: 'ahead of' },
          { value: 'behind', label: 'behind' },
        ]}
      />
      <Select
        label="Experiment"
        searchable
        data={others.map((row) => ({
          value: String(row.experiment_id),
          label: `${row.experiment_id} of ${row.user}, priority ${row.priority}`,
        }))}
        value={other}
        onChange={setOther}
      />
      <Text size="sm" c="dimmed">
        It takes over that one's priority.
      </Text>
      {move.error && (
        <Alert color="red" role="alert">
          {move.error.message}
        </Alert>
      )}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose}>
          Close
        </Button>
        <Button loading={move.isPending} disabled={other === null} onClick={() => move.mutate(Number(other))}>
          Move
        </Button>
      </Group>
    </Stack>
  )
}
