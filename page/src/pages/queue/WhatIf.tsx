import { Alert, Button, Group, Loader, NumberInput, Select, Stack, Text, Title } from '@mantine/core'
import { getRouteApi } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { useWhatIf } from '../../api/past'
import { inWords, POLICIES, type Policy, SLOTS, whatIf } from '../../lib/whatIf'
import { WhatIfAnswered } from './WhatIfAnswered'

const route = getRouteApi('/queue')

/** The recorded trials run again under another policy of the pool, or with more agents. */
export function WhatIf({ pool }: { pool: string }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const asked = whatIf({ ...search })
  const query = useWhatIf(pool, asked, search.at)
  const change = (changed: object) => navigate({ search: (before) => ({ ...before, ...changed }), replace: true })
  return (
    <Stack component="section" aria-label="What if" gap="sm">
      <Title order={2} size="h4">
        What if …
      </Title>
      <Text size="sm" c="dimmed">
        The trials on record run again by the scheduler's own rules under a virtual clock, beside what happened. Each
        takes the time that it trained.
      </Text>
      <Form
        key={JSON.stringify(asked ?? {})}
        asked={{ ...search }}
        busy={query.isFetching}
        onAsk={(found) => change({ policy: found.policy, agents: found.agents, slots: found.slots })}
      />
      {query.isFetching && (
        <Group gap="xs" role="status">
          <Loader size="xs" /> <Text size="sm">The simulation takes up to half a minute.</Text>
        </Group>
      )}
      {query.error !== null && asked !== undefined && !query.isFetching && (
        <Alert color="red" role="alert" title="This could not be simulated">
          {query.error.message}{' '}
          <Button size="compact-sm" variant="light" color="red" onClick={() => query.refetch()}>
            Try again
          </Button>
        </Alert>
      )}
      {asked !== undefined && query.data !== undefined && <WhatIfAnswered answer={query.data} asked={inWords(asked)} />}
    </Stack>
  )
}

interface FormProps {
  asked: Record<string, unknown>
  busy: boolean
  onAsk: (found: { policy?: Policy | undefined; agents?: number | undefined; slots?: number | undefined }) => void
}

function Form({ asked, busy, onAsk }: FormProps) {
  const [policy, setPolicy] = useState<string | null>(typeof asked.policy === 'string' ? asked.policy : null)
  const [agents, setAgents] = useState<string | number>(Number(asked.agents ?? 0))
  const [slots, setSlots] = useState<string | number>(Number(asked.slots ?? SLOTS))
  const found = whatIf({ policy, agents: Number(agents), slots: Number(slots) })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (found !== undefined) onAsk({ policy: found.policy, agents: found.agents, slots: found.slots })
  }
  return (
    <form onSubmit={submit}>
      <Group align="end">
        <Select
          label="this pool shared by"
          placeholder="its policy on record"
          clearable
          data={POLICIES.map((value) => ({ value, label: value.replace('_', ' ') }))}
          value={policy}
          onChange={setPolicy}
          w={190}
        />
        <NumberInput
          label="and had more agents"
          min={0}
          max={100}
          allowDecimal={false}
          value={agents}
          onChange={setAgents}
          w={150}
        />
        <NumberInput
          label="of so many slots"
          min={1}
          max={64}
          allowDecimal={false}
          value={slots}
          onChange={setSlots}
          w={130}
        />
        <Button type="submit" variant="default" disabled={found === undefined || busy}>
          Simulate
        </Button>
        <Button
          variant="subtle"
          onClick={() => onAsk({ policy: undefined, agents: undefined, slots: undefined })}
          disabled={whatIf(asked) === undefined}
        >
          Clear
        </Button>
      </Group>
    </form>
  )
}
