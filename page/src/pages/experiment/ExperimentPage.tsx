import { Alert, Badge, Group, Stack, Tabs, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import type { ExperimentDetail } from '../../api/openapi'
import { experiment } from '../../api/queries'
import { moment } from '../../lib/time'
import { LogView } from '../../parts/LogView'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { StateBadge } from '../../parts/StateBadge'
import { Actions } from './Actions'
import { CodeTab } from './CodeTab'
import { Configuration } from './Configuration'
import { CurvesTab } from './CurvesTab'
import { ExperimentTimeSlider } from './ExperimentTimeSlider'
import { FailedTrials } from './FailedTrials'
import { HyperparametersTab } from './HyperparametersTab'
import { InexactTrials } from './InexactTrials'
import { JustSubmitted } from './JustSubmitted'
import { LineageView } from './LineageView'
import { RungsTab } from './RungsTab'
import { Summary } from './Summary'
import { Trials } from './Trials'
import { useLookingBack } from './useLookingBack'

const route = getRouteApi('/experiments/$id')

export function ExperimentPage() {
  const id = Number(route.useParams().id)
  const query = useQuery(experiment(id))
  return <QueryBoundary query={query}>{(item) => <Shown item={item} />}</QueryBoundary>
}

function Shown({ item: now }: { item: ExperimentDetail }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const { at, list, query, past, opened, open } = useLookingBack(now, search)
  const item = past?.item ?? now
  const slider = (
    <ExperimentTimeSlider
      query={list}
      opened={opened}
      onOpen={open}
      at={at}
      onChange={(next) => navigate({ search: (before) => ({ ...before, at: next }), replace: true, state: true })}
    />
  )
  const unknown = at !== undefined && past === undefined
  return (
    <Stack>
      <Group justify="space-between">
        <Group gap="sm">
          <Title order={1} size="h2" style={{ overflowWrap: 'anywhere' }}>
            {item.name}
          </Title>
          <Text c="dimmed">No. {item.id}</Text>
          {!unknown && <StateBadge state={item.state} />}
          {item.labels.map((label) => (
            <Badge key={label} variant="outline" color="gray" tt="none">
              {label}
            </Badge>
          ))}
        </Group>
        {at === undefined && <Actions item={item} />}
        {past !== undefined && (
          <Text c="dimmed">
            at position {past.at} of the log, {moment(past.item.as_of_us ?? 0)}
          </Text>
        )}
      </Group>
      {!unknown && <Summary item={item} past={past} />}
      {unknown && <QueryBoundary query={query}>{() => null}</QueryBoundary>}
      {!unknown && item.error && (
        <Alert color="red" title="It failed">
          {item.error}
        </Alert>
      )}
      <JustSubmitted />
      {at === undefined && <FailedTrials item={item} />}
      {at === undefined && !unknown && <InexactTrials item={item} />}
      <Tabs
        value={search.tab ?? 'curves'}
        onChange={(tab) =>
          navigate({ search: (before) => ({ ...before, tab: tab ?? undefined }), replace: true, state: true })
        }
        keepMounted={false}
      >
        <Tabs.List>
          <Tabs.Tab value="curves">Curves</Tabs.Tab>
          <Tabs.Tab value="rungs">{item.method === 'pbt' ? 'Lineage' : 'Rungs'}</Tabs.Tab>
          <Tabs.Tab value="trials">Trials</Tabs.Tab>
          <Tabs.Tab value="hyperparameters">Hyperparameters</Tabs.Tab>
          <Tabs.Tab value="logs">Logs</Tabs.Tab>
          <Tabs.Tab value="code">Code</Tabs.Tab>
          <Tabs.Tab value="configuration">Configuration</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="curves" pt="md">
          <Stack>
            {slider}
            {!unknown && <CurvesTab item={item} past={past} />}
          </Stack>
        </Tabs.Panel>
        <Tabs.Panel value="rungs" pt="md">
          {item.method === 'pbt' ? <LineageView item={item} /> : <RungsTab item={item} />}
        </Tabs.Panel>
        <Tabs.Panel value="trials" pt="md">
          <Stack>
            {slider}
            {!unknown && <Trials item={item} past={past} />}
          </Stack>
        </Tabs.Panel>
        <Tabs.Panel value="hyperparameters" pt="md">
          <HyperparametersTab item={item} />
        </Tabs.Panel>
        <Tabs.Panel value="logs" pt="md">
          <LogView
            source={{ experiment: item.id }}
            search={search}
            live={item.ended_us === null}
            onChange={(changed) =>
              navigate({ search: (before) => ({ ...before, ...changed }), replace: true, state: true })
            }
          />
        </Tabs.Panel>
        <Tabs.Panel value="code" pt="md">
          <CodeTab item={item} />
        </Tabs.Panel>
        <Tabs.Panel value="configuration" pt="md">
          <Configuration item={item} />
        </Tabs.Panel>
      </Tabs>
    </Stack>
  )
}
