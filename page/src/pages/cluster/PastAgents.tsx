import { Anchor, Badge, Group, Paper, SimpleGrid, Stack, Text } from '@mantine/core'
import { Link } from '@tanstack/react-router'
import type { PastAgent } from '../../api/openapi'
import { slotThen } from '../../lib/agents'

interface Props {
  agents: PastAgent[]
  /** Number of agents that are not shown. */
  more: number
}

/** Agents at an earlier moment, with their slots and who was on them; nothing can be changed there. */
export function PastAgents({ agents, more }: Props) {
  if (agents.length === 0) return <Text c="dimmed">No agent had joined by then.</Text>
  return (
    <Stack gap="xs">
      <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }}>
        {agents.map((agent) => (
          <Paper key={agent.id} withBorder p="sm" component="section" aria-label={`Agent ${agent.id}, then`}>
            <Stack gap="xs">
              <Group justify="space-between">
                <Text fw={600}>{agent.id}</Text>
                <Badge color={agent.lost ? 'red' : 'green'} variant="light">
                  {agent.lost ? 'lost' : 'joined'}
                </Badge>
              </Group>
              <Text size="xs" c="dimmed">
                pool {agent.pool}
              </Text>
              <Group gap={6}>
                {agent.slots.map((slot) => (
                  <Paper
                    key={slot.slot_id}
                    withBorder
                    px={8}
                    py={4}
                    bg={slot.allocation_id == null ? undefined : 'var(--mantine-primary-color-light)'}
                    style={slot.enabled && !agent.lost ? undefined : { borderStyle: 'dashed', opacity: 0.75 }}
                  >
                    <Text size="xs">
                      {agent.kind} {slot.slot_id}: <Holder {...slotThen(slot, agent.lost)} />
                    </Text>
                  </Paper>
                ))}
                {agent.auxiliary.map((allocation) => (
                  <Text key={allocation} size="xs">
                    <Holder {...slotThen({ enabled: true, allocation_id: allocation }, false)} />
                  </Text>
                ))}
              </Group>
            </Stack>
          </Paper>
        ))}
      </SimpleGrid>
      {more > 0 && <Text c="dimmed">and {more} more agents</Text>}
    </Stack>
  )
}

function Holder({ text, experiment }: { text: string; experiment: number | undefined }) {
  if (experiment === undefined) return <>{text}</>
  return (
    <Anchor component={Link} to={`/experiments/${experiment}`} size="xs">
      {text}
    </Anchor>
  )
}
