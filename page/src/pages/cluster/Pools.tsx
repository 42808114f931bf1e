import { Group, Paper, Progress, Text } from '@mantine/core'
import type { PoolQueue } from '../../api/openapi'

/** Each pool's slots in use, and how it shares them. */
export function Pools({ pools }: { pools: PoolQueue[] }) {
  if (pools.length === 0) return <Text c="dimmed">No pool has agents or experiments.</Text>
  return (
    <Group align="stretch">
      {pools.map((pool) => {
        const used = pool.capacity - pool.free
        return (
          <Paper key={pool.pool} withBorder p="sm" miw={220}>
            <Text fw={600}>{pool.pool}</Text>
            <Text size="sm">
              {used} of {pool.capacity} slots in use
              {pool.leaving > 0 && `, ${pool.leaving} being freed`}
            </Text>
            <Progress
              my={6}
              value={pool.capacity === 0 ? 0 : (100 * used) / pool.capacity}
              aria-label={`Slots of ${pool.pool} in use`}
            />
            <Text size="xs" c="dimmed">
              {pool.agents} {pool.agents === 1 ? 'agent' : 'agents'} · {pool.policy.replace('_', ' ')} · {pool.waiting}{' '}
              {pool.waiting === 1 ? 'experiment waits' : 'experiments wait'}
            </Text>
          </Paper>
        )
      })}
    </Group>
  )
}
