import { Anchor, Badge, Group, List, Paper, Stack, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { provisionedPool } from '../../api/nodes'
import type { NodeView, PoolView } from '../../api/openapi'
import { costPerHour, lacks, nodesInWords } from '../../lib/nodes'
import { duration, moment } from '../../lib/time'
import { Facts } from '../../parts/Facts'
import { NodeTable } from './NodeTable'

interface Props {
  pool: PoolView
  nodes: NodeView[]
  /** Whether who looks may change nodes. */
  may: boolean
  onLogs: (node: string) => void
}

/** One pool: where its nodes come from, what they cost, what it lacks, and each node. */
export function NodePool({ pool, nodes, may, onLogs }: Props) {
  const { provisioning } = pool
  const most = provisioning.cost_per_hour_max
  const limit = most == null ? '' : ` of at most ${costPerHour(most)}`
  return (
    <Paper withBorder p="md" component="section" aria-label={`Pool ${pool.pool}`}>
      <Stack gap="sm">
        <Group gap="xs">
          <Title order={2} size="h4">
            <Anchor component={Link} to={`/nodes?pool=${pool.pool}`} inherit>
              {pool.pool}
            </Anchor>
          </Title>
          <Badge variant="light" color="gray" tt="none">
            {provisioning.provisioner}
          </Badge>
        </Group>
        <Facts
          facts={[
            ['Nodes', nodesInWords(pool)],
            ['Cost per hour', `${costPerHour(pool.cost_per_hour)}${limit}`],
            ['Given back after', `${duration(provisioning.idle_seconds)} without work`],
          ]}
        />
        <Lacks pool={pool} />
        <LastFailure pool={pool} />
        <NodeTable pool={pool.pool} nodes={nodes} may={may} onLogs={onLogs} />
      </Stack>
    </Paper>
  )
}

function Lacks({ pool }: { pool: PoolView }) {
  // Only a pool that lacks something has standings, which another service is asked for.
  const known = useQuery({ ...provisionedPool(pool.pool), enabled: pool.wanted.length > 0 })
  const found = lacks(pool.wanted, pool.wanted.length > 0 ? (known.data?.standings ?? []) : [])
  if (found.length === 0) return null
  return (
    <Stack gap={4}>
      <Text size="sm" fw={600}>
        Waiting for nodes
      </Text>
      <List size="sm" spacing={2}>
        {found.map((item) => (
          <List.Item key={`${item.experiment} ${item.what}`}>
            {item.what}, first for{' '}
            <Anchor component={Link} to={`/experiments/${item.experiment}`} size="sm" underline="always">
              experiment {item.experiment}
            </Anchor>
            {item.why !== '' && `; ${item.why}`}
          </List.Item>
        ))}
      </List>
    </Stack>
  )
}

function LastFailure({ pool }: { pool: PoolView }) {
  const failed = pool.last_failure
  if (failed == null) return null
  const again =
    failed.retry_at_us == null ? '' : ` Nodes of this type are asked for again from ${moment(failed.retry_at_us)}.`
  return (
    <Stack gap={2}>
      <Text size="sm">
        <Text span fw={600} size="sm">
          Last failure:
        </Text>{' '}
        node {failed.node_id}, {moment(failed.at_us)}. {failed.reason}
        {again}
      </Text>
      {failed.message !== '' && (
        <Text size="xs" ff="monospace" c="dimmed" style={{ overflowWrap: 'anywhere' }}>
          {failed.message}
        </Text>
      )}
    </Stack>
  )
}
