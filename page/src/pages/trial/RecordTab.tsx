import {
  Alert,
  Badge,
  Code,
  Group,
  Paper,
  ScrollArea,
  SimpleGrid,
  Stack,
  Table,
  Text,
  TextInput,
  Title,
} from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import type { EnvironmentRecord, StartView, TrialRecordView, TrialView } from '../../api/openapi'
import { record } from '../../api/trials'
import { shownBytes } from '../../lib/numbers'
import { moment } from '../../lib/time'
import { Facts } from '../../parts/Facts'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { Value } from '../../parts/Value'

const NAME_CHARACTERS = 12
const PACKAGES_PX = 320

export function RecordTab({ item }: { item: TrialView }) {
  const query = useQuery(record(item.experiment_id, item.id))
  return <QueryBoundary query={query}>{(found) => <Shown found={found} />}</QueryBoundary>
}

function Shown({ found }: { found: TrialRecordView }) {
  return (
    <Stack>
      <Facts
        facts={[
          ['Code', <Code key="code">{found.context_hash.slice(0, NAME_CHARACTERS)}</Code>],
          ['Seed', <Value key="seed" of={found.seed} />],
          ['Command', found.origin?.command_line ? <Code key="line">{found.origin.command_line}</Code> : '–'],
          ['Git', found.origin?.git ? <Git key="git" {...found.origin.git} /> : '–'],
        ]}
      />
      <Title order={2} size="h4">
        Starts
      </Title>
      {found.starts.length === 0 ? (
        <Text c="dimmed">No run has started yet, so its environment is not on record.</Text>
      ) : (
        <Starts starts={found.starts} />
      )}
      {Object.entries(found.environments).map(([name, environment]) => (
        <Environment key={name} name={name} environment={environment} />
      ))}
    </Stack>
  )
}

function Git(git: { commit: string; branch?: string; diff?: string; untracked?: readonly string[] }) {
  return (
    <>
      <Code>{git.commit.slice(0, NAME_CHARACTERS)}</Code> {git.branch ?? ''}{' '}
      {git.diff || git.untracked?.length ? '(with changes)' : ''}
    </>
  )
}

function Starts({ starts }: { starts: readonly StartView[] }) {
  return (
    <ScrollArea viewportProps={{ tabIndex: 0 }}>
      <Table aria-label="Starts" miw={640}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Time</Table.Th>
            <Table.Th>Run</Table.Th>
            <Table.Th>Environment</Table.Th>
            <Table.Th>Data</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {starts.map((start) => (
            <Table.Tr key={`${start.allocation_id} ${start.time_us}`}>
              <Table.Td style={{ whiteSpace: 'nowrap' }}>{moment(start.time_us)}</Table.Td>
              <Table.Td>{start.allocation_id}</Table.Td>
              <Table.Td>
                <Code>{start.environment_hash?.slice(0, NAME_CHARACTERS) ?? '–'}</Code>
              </Table.Td>
              <Table.Td>
                {start.data.length === 0 && <Text size="sm">none declared</Text>}
                {start.data.map((data) => (
                  <Group key={data.name} gap="xs">
                    <Text size="sm">
                      {data.name}: {data.files} files, {shownBytes(data.size_bytes)}
                    </Text>
                    <Code title={`Fingerprint by ${data.method}`}>{data.fingerprint.slice(0, NAME_CHARACTERS)}</Code>
                    {start.changed_data.includes(data.name) && (
                      <Badge color="red" variant="light" tt="none" autoContrast>
                        changed since the start before
                      </Badge>
                    )}
                  </Group>
                ))}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </ScrollArea>
  )
}

function Environment({ name, environment }: { name: string; environment: EnvironmentRecord }) {
  const [text, setText] = useState('')
  const packages = Object.entries(environment.packages).filter(([one]) =>
    one.toLowerCase().includes(text.toLowerCase()),
  )
  const { hardware } = environment
  const gpus = hardware.gpus ?? []
  return (
    <Paper withBorder p="sm">
      <Stack gap="sm">
        <Title order={3} size="h5">
          Environment {name.slice(0, NAME_CHARACTERS)}
        </Title>
        <Facts
          facts={[
            ['Python', environment.python],
            ['Platform', environment.platform],
            ['Machine', `${hardware.cpu_model}, ${hardware.cpu_cores} cores, ${hardware.memory_gib} GiB`],
            ['GPUs', gpus.length === 0 ? 'none' : gpus.map((gpu) => gpu.name).join(', ')],
            ['Packages', Object.keys(environment.packages).length],
          ]}
        />
        <SimpleGrid cols={{ base: 1, md: 2 }}>
          <Stack gap="xs">
            <TextInput
              aria-label="Packages"
              placeholder="Part of a package's name"
              value={text}
              onChange={(event) => setText(event.currentTarget.value)}
            />
            <ScrollArea.Autosize mah={PACKAGES_PX} viewportProps={{ tabIndex: 0 }}>
              <Pairs label="Packages" pairs={packages} />
            </ScrollArea.Autosize>
          </Stack>
          <Stack gap="xs">
            {(
              [
                ['Drivers', environment.drivers],
                ['Numerics', environment.numerics],
                ['Threads', environment.threads],
                ['Variables', environment.variables],
              ] as const
            ).map(
              ([label, values]) =>
                values &&
                Object.keys(values).length > 0 && (
                  <div key={label}>
                    <Text size="sm" fw={600}>
                      {label}
                    </Text>
                    <Pairs label={label} pairs={Object.entries(values)} />
                  </div>
                ),
            )}
          </Stack>
        </SimpleGrid>
        {environment.loaded && environment.loaded.length > 0 && (
          <Alert color="gray" p="xs">
            Loaded: {environment.loaded.join(', ')}
          </Alert>
        )}
      </Stack>
    </Paper>
  )
}

function Pairs({ label, pairs }: { label: string; pairs: [string, string][] }) {
  return (
    <Table aria-label={label} verticalSpacing={2}>
      <Table.Tbody>
        {pairs.map(([name, value]) => (
          <Table.Tr key={name}>
            <Table.Td>{name}</Table.Td>
            <Table.Td style={{ overflowWrap: 'anywhere' }}>{value}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  )
}
