import { Alert, Anchor, Badge, Button, Code, Group, ScrollArea, Stack, Table, Text } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { Fragment } from 'react'
import { answered, api } from '../../api/client'
import type { CheckpointView, ExperimentDetail, TrialView } from '../../api/openapi'
import { checkpoint, checkpoints } from '../../api/trials'
import { lengthUnit, shownLength } from '../../lib/lengths'
import { shownBytes } from '../../lib/numbers'
import { moment } from '../../lib/time'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { Value } from '../../parts/Value'

const route = getRouteApi('/trials/$id')
const COLUMNS = 7

interface Props {
  item: TrialView
  experiment: ExperimentDetail
}

export function CheckpointsTab({ item, experiment }: Props) {
  const query = useQuery(checkpoints(item.experiment_id, item.id))
  return (
    <QueryBoundary query={query}>
      {(list) =>
        list.length === 0 ? (
          <Text c="dimmed" py="xl" ta="center">
            The trial has not saved a checkpoint yet.
          </Text>
        ) : (
          <List list={list} experiment={experiment} />
        )
      }
    </QueryBoundary>
  )
}

function List({ list, experiment }: { list: CheckpointView[]; experiment: ExperimentDetail }) {
  const opened = route.useSearch().checkpoint
  const navigate = route.useNavigate()
  const unit = lengthUnit(experiment.config)
  const open = (id: string) =>
    navigate({ search: (before) => ({ ...before, checkpoint: id === opened ? undefined : id }), replace: true })
  return (
    <ScrollArea viewportProps={{ tabIndex: 0 }}>
      <Table aria-label="Checkpoints" miw={720}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Checkpoint</Table.Th>
            <Table.Th>Batches</Table.Th>
            <Table.Th>Length</Table.Th>
            <Table.Th>{experiment.metric}</Table.Th>
            <Table.Th>Size</Table.Th>
            <Table.Th>Saved</Table.Th>
            <Table.Th>State</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {list.toReversed().map((one) => (
            <Fragment key={one.id}>
              <Table.Tr>
                <Table.Td>
                  <Button
                    size="compact-sm"
                    variant="subtle"
                    aria-expanded={opened === one.id}
                    onClick={() => open(one.id)}
                  >
                    {one.id}
                  </Button>
                </Table.Td>
                <Table.Td>{one.batches}</Table.Td>
                <Table.Td>{shownLength(one.length, unit)}</Table.Td>
                <Table.Td>
                  <Value of={one.metric} />
                </Table.Td>
                <Table.Td>{shownBytes(one.size_bytes)}</Table.Td>
                <Table.Td style={{ whiteSpace: 'nowrap' }}>{moment(one.saved_us)}</Table.Td>
                <Table.Td>
                  <Kept one={one} best={experiment.best_checkpoint_id === one.id} />
                </Table.Td>
              </Table.Tr>
              {opened === one.id && (
                <Table.Tr>
                  <Table.Td colSpan={COLUMNS}>
                    <Detail one={one} />
                  </Table.Td>
                </Table.Tr>
              )}
            </Fragment>
          ))}
        </Table.Tbody>
      </Table>
    </ScrollArea>
  )
}

function Kept({ one, best }: { one: CheckpointView; best: boolean }) {
  const [word, color] =
    one.deleted_us !== null ? ['deleted', 'gray'] : one.damaged_us != null ? ['damaged', 'red'] : ['kept', 'green']
  return (
    <Group gap={4} wrap="nowrap">
      <Badge variant="light" color={color} tt="none" autoContrast>
        {word}
      </Badge>
      {best && (
        <Badge variant="light" color="teal" tt="none" autoContrast>
          best
        </Badge>
      )}
    </Group>
  )
}

/** Files of one checkpoint, what is known of their state, and how to get them. */
function Detail({ one }: { one: CheckpointView }) {
  const query = useQuery(checkpoint(one.id))
  const verify = useMutation({
    mutationFn: () =>
      answered(api.POST('/api/v1/checkpoints/{checkpoint_id}/verify', { params: { path: { checkpoint_id: one.id } } })),
  })
  const gone = one.deleted_us !== null
  return (
    <Stack gap="xs" pb="sm">
      {one.delete_reason && <Text size="sm">{one.delete_reason}</Text>}
      {one.damage && (
        <Alert color="red" title="A run could not resume from it">
          {one.damage}
          {one.resumed_from ? ` The run went on from ${one.resumed_from} instead.` : ''}
        </Alert>
      )}
      {!gone && (
        <Group gap="xs">
          <Button component="a" href={`/api/v1/checkpoints/${one.id}/download`} download size="compact-sm">
            Download ({shownBytes(one.size_bytes)})
          </Button>
          <Button size="compact-sm" variant="default" loading={verify.isPending} onClick={() => verify.mutate()}>
            Verify
          </Button>
          {verify.data && (
            <Text size="sm" c={verify.data.ok ? 'teal' : 'red'} role="status">
              {verify.data.ok
                ? `Verified: all ${verify.data.files} files are as they were recorded.`
                : `Damaged: ${verify.data.problems.join(' ')}`}
            </Text>
          )}
          {verify.error && (
            <Text size="sm" c="red" role="alert">
              {verify.error.message}
            </Text>
          )}
        </Group>
      )}
      <Text size="xs" c="dimmed" style={{ overflowWrap: 'anywhere' }}>
        {one.location}
      </Text>
      <QueryBoundary query={query}>
        {(found) => (
          <Table aria-label={`Files of ${one.id}`}>
            <Table.Tbody>
              {found.files.map((file) => (
                <Table.Tr key={file.path}>
                  <Table.Td>{file.path}</Table.Td>
                  <Table.Td>{shownBytes(file.size_bytes)}</Table.Td>
                  <Table.Td>
                    <Code title="SHA-256">{file.sha256.slice(0, 12)}</Code>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
      </QueryBoundary>
      <Text size="xs" c="dimmed">
        Or: <Anchor href={`/api/v1/checkpoints/${one.id}`}>its record</Anchor>,{' '}
        <Code>tenuto ckpt download {one.id}</Code>
      </Text>
    </Stack>
  )
}
