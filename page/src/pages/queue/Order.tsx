import { Alert, Anchor, ScrollArea, Table, Text, UnstyledButton, VisuallyHidden } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type DragEvent, useRef, useState } from 'react'
import { answered, api } from '../../api/client'
import type { PoolQueue, QueueRow } from '../../api/openapi'
import { dropIndex, type Move, moveTo, reasonOf } from '../../lib/queue'
import { Priority } from './Priority'

interface Moved {
  experiment: number
  move: Move
}

/** Experiments of a pool in the order of its queue, which can be changed where it is not `frozen`. */
export function Order({ pool, frozen }: { pool: PoolQueue; frozen: boolean }) {
  const client = useQueryClient()
  const [told, setTold] = useState('')
  const dragged = useRef<number | undefined>(undefined)
  const [over, setOver] = useState<{ at: number; lower: boolean }>()
  const order = pool.rows.map((row) => row.experiment_id)
  const moving = useMutation({
    mutationFn: ({ experiment, move }: Moved) =>
      answered(
        api.POST('/api/v1/jobs/{experiment_id}/move', { params: { path: { experiment_id: experiment } }, body: move }),
      ),
    onSuccess: (_, { experiment, move }) =>
      setTold(`Experiment ${experiment} is ${move.ahead_of ? 'ahead of' : 'behind'} ${move.ahead_of ?? move.behind}.`),
    onSettled: () => client.invalidateQueries({ queryKey: ['queue'] }),
  })
  const move = (from: number, to: number) => {
    const experiment = order[from]
    const asked = moveTo(order, from, to)
    if (experiment !== undefined && asked !== undefined && !moving.isPending) moving.mutate({ experiment, move: asked })
  }
  const drop = () => {
    if (dragged.current !== undefined && over !== undefined)
      move(dragged.current, dropIndex(dragged.current, over.at, over.lower))
    dragged.current = undefined
    setOver(undefined)
  }
  const fair = pool.policy === 'fair_share'
  if (pool.rows.length === 0)
    return (
      <Text c="dimmed" ta="center" py="xl">
        Nobody has slots of this pool, and nobody waits for them.
      </Text>
    )
  return (
    <>
      <VisuallyHidden role="status">{told}</VisuallyHidden>
      {moving.error && (
        <Alert color="red" role="alert" withCloseButton onClose={() => moving.reset()}>
          {moving.error.message}
        </Alert>
      )}
      <ScrollArea viewportProps={{ tabIndex: 0 }}>
        <Table aria-label={`Queue of pool ${pool.pool}`} highlightOnHover miw={{ base: 300, sm: 620 }}>
          <Table.Thead>
            <Table.Tr>
              {!frozen && (
                <Table.Th w={36}>
                  <VisuallyHidden>Move</VisuallyHidden>
                </Table.Th>
              )}
              <Table.Th>Experiment</Table.Th>
              <Table.Th visibleFrom="sm">Owner</Table.Th>
              <Table.Th>Priority</Table.Th>
              <Table.Th ta="right">Slots</Table.Th>
              {fair && <Table.Th ta="right">Share</Table.Th>}
              <Table.Th ta="right" visibleFrom="sm">
                Waiting
              </Table.Th>
              <Table.Th visibleFrom="sm">Why it waits</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {pool.rows.map((row, at) => (
              <Table.Tr
                key={`${row.experiment_id} ${row.experiment_id === 0 ? at : ''}`}
                style={edge(over, at)}
                onDragOver={(event) => {
                  if (frozen) return
                  event.preventDefault()
                  setOver({ at, lower: isLower(event) })
                }}
                onDrop={(event) => {
                  event.preventDefault()
                  drop()
                }}
              >
                {!frozen && (
                  <Table.Td>
                    <Handle
                      row={row}
                      onStep={(step) => move(at, at + step)}
                      onDrag={() => {
                        dragged.current = at
                      }}
                      onDragEnd={() => setOver(undefined)}
                    />
                  </Table.Td>
                )}
                <Table.Td>
                  {row.experiment_id === 0 ? (
                    'hidden'
                  ) : (
                    <Anchor component={Link} to={`/experiments/${row.experiment_id}`} size="sm">
                      {row.experiment_id}
                    </Anchor>
                  )}
                  <Text size="xs" hiddenFrom="sm">
                    {row.workspace}/{row.user}: {reasonOf(row) || 'none of its trials waits'}
                  </Text>
                </Table.Td>
                <Table.Td visibleFrom="sm">
                  {row.workspace}/{row.user}
                </Table.Td>
                <Table.Td>{frozen ? row.priority : <Priority row={row} />}</Table.Td>
                <Table.Td ta="right">{slotsOf(row)}</Table.Td>
                {fair && <Table.Td ta="right">{row.share ?? '–'}</Table.Td>}
                <Table.Td ta="right" visibleFrom="sm">
                  {row.trials_waiting}
                </Table.Td>
                <Table.Td visibleFrom="sm" miw={220}>
                  {reasonOf(row)}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </ScrollArea>
      {hidden(pool) > 0 && (
        <Text size="sm" c="dimmed">
          and {hidden(pool)} more experiments that wait
        </Text>
      )}
    </>
  )
}

interface HandleProps {
  row: QueueRow
  onStep: (step: number) => void
  onDrag: () => void
  onDragEnd: () => void
}

function Handle({ row, onStep, onDrag, onDragEnd }: HandleProps) {
  return (
    <UnstyledButton
      draggable
      px={6}
      style={{ cursor: 'grab' }}
      aria-label={`Move experiment ${row.experiment_id}: up and down arrows`}
      onKeyDown={(event) => {
        if (event.key !== 'ArrowUp' && event.key !== 'ArrowDown') return
        event.preventDefault()
        onStep(event.key === 'ArrowUp' ? -1 : 1)
      }}
      onDragStart={(event) => {
        event.dataTransfer.effectAllowed = 'move'
        event.dataTransfer.setData('text/plain', String(row.experiment_id))
        onDrag()
      }}
      onDragEnd={onDragEnd}
    >
      ⠿
    </UnstyledButton>
  )
}

function isLower(event: DragEvent): boolean {
  const box = event.currentTarget.getBoundingClientRect()
  return event.clientY > box.top + box.height / 2
}

function edge(over: { at: number; lower: boolean } | undefined, at: number) {
  if (over?.at !== at) return undefined
  return { boxShadow: `inset 0 ${over.lower ? -3 : 3}px var(--mantine-primary-color-filled)` }
}

/** Trials without slots run, too; and those that leave have theirs still. */
function slotsOf(row: QueueRow): string {
  if (row.slots_per_trial === 0) return `0 (${row.auxiliary_trials} run)`
  return row.slots_leaving > 0 ? `${row.slots} (${row.slots_leaving} being freed)` : String(row.slots)
}

function hidden(pool: PoolQueue): number {
  return pool.waiting - pool.rows.filter((row) => row.trials_waiting > 0).length
}
