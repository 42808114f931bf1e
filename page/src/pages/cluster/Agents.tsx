import { Anchor, Badge, Button, Group, Paper, SimpleGrid, Stack, Text, Tooltip } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { answered, api } from '../../api/client'
import type { AgentView, AllocationView } from '../../api/openapi'
import { changesOf, type SlotsChange } from '../../lib/agents'
import { inOrder } from '../../lib/slots'
import { duration, secondsBetween } from '../../lib/time'

interface Props {
  agents: AgentView[]
  allocations: AllocationView[]
}

export function Agents({ agents, allocations }: Props) {
  if (agents.length === 0) return <Text c="dimmed">No agent has joined yet: trials wait until one offers slots.</Text>
  const held = new Map(allocations.map((item) => [item.id, item]))
  const sorted = [...agents].sort(
    (a, b) =>
      Number(a.state === 'lost') - Number(b.state === 'lost') ||
      inOrder({ agent: a.id, slot: 0 }, { agent: b.id, slot: 0 }),
  )
  return (
    <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }}>
      {sorted.map((agent) => (
        <Agent key={agent.id} agent={agent} held={held} />
      ))}
    </SimpleGrid>
  )
}

function Agent({ agent, held }: { agent: AgentView; held: Map<string, AllocationView> }) {
  const lost = agent.state === 'lost'
  return (
    <Paper withBorder p="sm" component="section" id={`agent-${agent.id}`} aria-label={`Agent ${agent.id}`}>
      <Stack gap="xs">
        <Group justify="space-between">
          <Text fw={600}>{agent.id}</Text>
          <Badge color={lost ? 'red' : 'green'} variant="light" tt="none">
            {agent.state}
          </Badge>
        </Group>
        <Text size="xs" c="dimmed">
          {agent.host} · pool {agent.pool} · {agent.version}
        </Text>
        {agent.reason !== '' && <Text size="xs">{agent.reason}</Text>}
        <Group gap={6}>
          {agent.slots.map((slot) => (
            <Slot key={slot.slot_id} slot={slot} held={held.get(slot.allocation_id ?? '')} lost={lost} />
          ))}
          {agent.auxiliary.map((id) => (
            <TrialLink key={id} trial={held.get(id)?.trial_id ?? id} />
          ))}
        </Group>
        {!lost && <Changes agent={agent} />}
      </Stack>
    </Paper>
  )
}

interface SlotProps {
  slot: AgentView['slots'][number]
  held: AllocationView | undefined
  lost: boolean
}

function Slot({ slot, held, lost }: SlotProps) {
  const since = held?.started_us ?? held?.granted_us
  const what = held
    ? `${held.state}${since == null ? '' : ` for ${duration(secondsBetween(since, Date.now() * 1000))}`}`
    : slot.device
  return (
    <Tooltip label={`${slot.device}: ${what}`}>
      <Paper
        withBorder
        px={8}
        py={4}
        bg={held ? 'var(--mantine-primary-color-light)' : undefined}
        style={slot.enabled && !lost ? undefined : { borderStyle: 'dashed', opacity: 0.75 }}
      >
        <Text size="xs">
          {slot.kind} {slot.slot_id}:{' '}
          {held ? <TrialLink trial={held.trial_id} /> : slot.enabled ? lost ? 'gone' : 'free' : 'disabled'}
          {held && !slot.enabled && ' (disabled)'}
        </Text>
      </Paper>
    </Tooltip>
  )
}

function TrialLink({ trial }: { trial: string }) {
  return (
    <Anchor component={Link} to={`/experiments/${trial.split('-')[0]}`} size="xs">
      trial {trial}
    </Anchor>
  )
}

/** Takes the agent out of service, or back; the gateway says who may. */
function Changes({ agent }: { agent: AgentView }) {
  const client = useQueryClient()
  const change = useMutation({
    mutationFn: ({ verb, drain }: SlotsChange) => {
      const params = { path: { agent_id: agent.id } }
      return verb === 'enable'
        ? answered(api.POST('/api/v1/agents/{agent_id}/enable', { params, body: {} }))
        : answered(api.POST('/api/v1/agents/{agent_id}/disable', { params, body: { drain } }))
    },
    onSettled: () => client.invalidateQueries({ queryKey: ['agents'] }),
  })
  return (
    <Group gap="xs">
      {changesOf(agent).map((item) => (
        <Button
          key={item.label}
          size="compact-xs"
          variant="default"
          title={item.meaning}
          aria-label={`${item.label} agent ${agent.id}`}
          loading={change.isPending && change.variables.label === item.label}
          onClick={() => change.mutate(item)}
        >
          {item.label}
        </Button>
      ))}
      {change.error && (
        <Text size="sm" c="red" role="alert">
          {change.error.message}
        </Text>
      )}
    </Group>
  )
}
