import { Anchor, Group, Paper, Progress, Text } from '@mantine/core'
import { Link } from '@tanstack/react-router'
import type { PoolQueue, PoolView } from '../../api/openapi'
import { counted } from '../../lib/nodes'

/** Each pool's slots in use, and how it shares them. */
export function Pools({ pools, provisioned = [] }: { pools: PoolQueue[]; provisioned?: PoolView[] }) {
  if (pools.length === 0) return <Text c="dimmed">No pool has agents or experiments.</Text>
  return (
    <Group align="stretch">
      {pools.map((pool) => {
        const used = pool.capacity - pool.free
        const nodes = provisioned.find((item) => item.pool === pool.pool)
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
            {nodes !== undefined && (
              <Anchor component={Link} to={`/nodes?pool=${pool.pool}`} size="xs">
                {counted(nodes.nodes, 'node')} by {nodes.provisioning.provisioner}
                {nodes.nodes_coming > 0 && `, ${nodes.nodes_coming} coming`}
              </Anchor>
            )}
          </Paper>
        )
      })}
    </Group>
  )
}
