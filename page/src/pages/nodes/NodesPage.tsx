import { Anchor, Group, Stack, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { nodes, provisionedPools } from '../../api/nodes'
import { whoami } from '../../api/session'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { NodeLogs } from './NodeLogs'
import { NodePool } from './NodePool'

const route = getRouteApi('/nodes')

/** Pools whose nodes come and go, what each lacks, and the nodes. */
export function NodesPage() {
  const pools = useQuery(provisionedPools())
  const known = useQuery(nodes())
  const me = useQuery(whoami())
  const { pool, logs } = route.useSearch()
  const navigate = route.useNavigate()
  const open = (node: string | undefined) => navigate({ search: (before) => ({ ...before, logs: node }) })
  const may = me.data?.permissions.includes('pool.admin') ?? false
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={1} size="h2">
          {pool === undefined ? 'Nodes' : `Nodes of ${pool}`}
        </Title>
        {pool !== undefined && (
          <Anchor component={Link} to="/nodes" size="sm">
            All pools
          </Anchor>
        )}
      </Group>
      <QueryBoundary query={pools}>
        {(found) => {
          const shown = found.filter((item) => pool === undefined || item.pool === pool)
          if (shown.length === 0)
            return (
              <Text c="dimmed" py="xl" ta="center">
                {pool === undefined
                  ? 'No pool has a provisioner: agents are started by people. An admin makes one with tenuto pool create.'
                  : `Pool ${pool} has no provisioner: its agents are started by people.`}
              </Text>
            )
          return shown.map((item) => (
            <NodePool
              key={item.pool}
              pool={item}
              nodes={(known.data ?? []).filter((node) => node.pool === item.pool)}
              may={may}
              onLogs={open}
            />
          ))
        }}
      </QueryBoundary>
      {logs !== undefined && may && <NodeLogs node={logs} onClose={() => open(undefined)} />}
    </Stack>
  )
}
