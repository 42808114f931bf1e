import { Anchor, Group, ScrollArea, Stack, Table, Text, Title } from '@mantine/core'
import { Link } from '@tanstack/react-router'
import type { PoolQueue, QueueAnswer } from '../../api/openapi'
import { Share } from '../../charts/Share'

/** What each owner and, where a pool shares fairly, each experiment has, against what it is entitled to. */
export function Shares({ answer }: { answer: QueueAnswer }) {
  const fair = answer.pools.filter((pool) => pool.policy === 'fair_share' && pool.rows.length > 0)
  return (
    <Stack>
      <Title order={2} size="h4">
        Shares
      </Title>
      {fair.map((pool) => (
        <Fair key={pool.pool} pool={pool} />
      ))}
      <Owners rows={answer.shares} />
    </Stack>
  )
}

function Fair({ pool }: { pool: PoolQueue }) {
  const most = Math.max(1, ...pool.rows.map((row) => Math.max(row.slots, row.share ?? 0)))
  return (
    <Stack gap={4}>
      <Text size="sm" fw={600}>
        Pool {pool.pool}: slots in use, against the fair share (│)
      </Text>
      {pool.rows.map((row) => (
        <Group key={row.experiment_id} gap="sm" wrap="nowrap">
          <Text size="sm" w={150} truncate>
            <Anchor component={Link} to={`/experiments/${row.experiment_id}`} size="sm">
              {row.experiment_id}
            </Anchor>{' '}
            {row.workspace}/{row.user}
          </Text>
          <Share has={row.slots} share={row.share} most={most} />
        </Group>
      ))}
    </Stack>
  )
}

function Owners({ rows }: { rows: QueueAnswer['shares'] }) {
  if (rows.length === 0) return <Text c="dimmed">Nobody uses slots, and no weight or quota is set.</Text>
  return (
    <ScrollArea>
      <Table aria-label="Weights and quotas" maw={640}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Owner</Table.Th>
            <Table.Th ta="right">Weight</Table.Th>
            <Table.Th ta="right">Most slots</Table.Th>
            <Table.Th ta="right">Slots in use</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={`${row.owner} ${row.name}`}>
              <Table.Td>
                {row.owner} {row.name}
              </Table.Td>
              <Table.Td ta="right">{row.weight}</Table.Td>
              <Table.Td ta="right">{row.max_slots ?? '–'}</Table.Td>
              <Table.Td ta="right">{row.slots}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </ScrollArea>
  )
}
