import { Anchor, Badge, Button, Group, ScrollArea, Table, Text, Tooltip } from '@mantine/core'
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import type { NodeView } from '../../api/openapi'
import { costPerHour, phaseColor, phaseMeaning, releasable } from '../../lib/nodes'
import { duration, moment, secondsBetween } from '../../lib/time'
import { Release } from './Release'

const TICK_MS = 5_000

interface Props {
  pool: string
  nodes: NodeView[]
  may: boolean
  onLogs: (node: string) => void
}

/** Nodes that have not ended, the oldest first. */
export function NodeTable({ pool, nodes, may, onLogs }: Props) {
  const [leaving, setLeaving] = useState<NodeView>()
  const now = useNow()
  if (nodes.length === 0) return <Text c="dimmed" size="sm">{`Pool ${pool} has no node now.`}</Text>
  return (
    <ScrollArea viewportProps={{ tabIndex: 0, role: 'region', 'aria-label': `Nodes of ${pool}, scrolled` }}>
      <Table aria-label={`Nodes of pool ${pool}`} verticalSpacing={6} miw={820}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Node</Table.Th>
            <Table.Th>Phase</Table.Th>
            <Table.Th>Type</Table.Th>
            <Table.Th ta="right">Slots</Table.Th>
            <Table.Th ta="right" style={{ whiteSpace: 'nowrap' }}>
              Cost per hour
            </Table.Th>
            <Table.Th ta="right">Age</Table.Th>
            <Table.Th>Why</Table.Th>
            {may && <Table.Th aria-label="Actions" />}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {nodes.map((node) => (
            <Table.Tr key={node.id}>
              <Table.Td style={{ whiteSpace: 'nowrap' }}>
                <Named node={node} />
              </Table.Td>
              <Table.Td>
                <Tooltip label={phaseMeaning(node.phase)}>
                  <Badge variant="light" color={phaseColor(node.phase)} tt="none" miw="max-content">
                    {node.phase}
                  </Badge>
                </Tooltip>
              </Table.Td>
              <Table.Td>{node.node_type}</Table.Td>
              <Table.Td ta="right">{node.slots}</Table.Td>
              <Table.Td ta="right">{costPerHour(node.cost_per_hour)}</Table.Td>
              <Table.Td ta="right" style={{ whiteSpace: 'nowrap' }} title={`Requested ${moment(node.requested_us)}`}>
                {duration(Math.max(0, secondsBetween(node.requested_us, now)))}
              </Table.Td>
              <Table.Td maw={420}>
                <Text size="sm">{node.reason}</Text>
                {node.message !== '' && (
                  <Text size="xs" ff="monospace" c="dimmed" style={{ overflowWrap: 'anywhere' }}>
                    {node.message}
                  </Text>
                )}
              </Table.Td>
              {may && (
                <Table.Td>
                  <Group gap={6} wrap="nowrap" justify="flex-end">
                    <Button
                      size="compact-xs"
                      variant="default"
                      aria-label={`Log of node ${node.id}`}
                      onClick={() => onLogs(node.id)}
                    >
                      Log
                    </Button>
                    {releasable(node.phase) && (
                      <Button
                        size="compact-xs"
                        variant="default"
                        aria-label={`Give back node ${node.id}`}
                        onClick={() => setLeaving(node)}
                      >
                        Give back
                      </Button>
                    )}
                  </Group>
                </Table.Td>
              )}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {leaving && <Release node={leaving} onClose={() => setLeaving(undefined)} />}
    </ScrollArea>
  )
}

/** Its name, which is its agent's, and what the provider calls it. */
function Named({ node }: { node: NodeView }) {
  return (
    <>
      {node.phase === 'joined' ? (
        <Anchor component={Link} to="/cluster" hash={`agent-${node.id}`} size="sm" title="Its agent">
          {node.id}
        </Anchor>
      ) : (
        <Text size="sm">{node.id}</Text>
      )}
      {node.provider_id !== '' && (
        <Text size="xs" c="dimmed" maw={160} truncate title={node.provider_id}>
          {node.provider_id}
        </Text>
      )}
    </>
  )
}

function useNow(): number {
  const [now, setNow] = useState(() => Date.now() * 1000)
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() * 1000), TICK_MS)
    return () => clearInterval(timer)
  }, [])
  return now
}
