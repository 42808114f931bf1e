import { Alert, Badge, Group, Stack, Tabs, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import type { ExperimentDetail } from '../../api/openapi'
import { experiment } from '../../api/queries'
import { Asked } from '../../parts/Asked'
import { LogView } from '../../parts/LogView'
import { StateBadge } from '../../parts/StateBadge'
import { Actions } from './Actions'
import { CodeTab } from './CodeTab'
import { Configuration } from './Configuration'
import { CurvesTab } from './CurvesTab'
import { HyperparametersTab } from './HyperparametersTab'
import { LineageView } from './LineageView'
import { RungsTab } from './RungsTab'
import { Summary } from './Summary'
import { Trials } from './Trials'

const route = getRouteApi('/experiments/$id')

export function ExperimentPage() {
  const id = Number(route.useParams().id)
  const query = useQuery(experiment(id))
  return <Asked query={query}>{(item) => <Shown item={item} />}</Asked>
}

function Shown({ item }: { item: ExperimentDetail }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  return (
    <Stack>
      <Group justify="space-between">
        <Group gap="sm">
          <Title order={1} size="h2">
            {item.name}
          </Title>
          <Text c="dimmed">No. {item.id}</Text>
          <StateBadge state={item.state} />
          {item.labels.map((label) => (
            <Badge key={label} variant="outline" color="gray" tt="none">
              {label}
            </Badge>
          ))}
        </Group>
        <Actions item={item} />
      </Group>
      <Summary item={item} />
      {item.error && (
        <Alert color="red" title="It failed">
          {item.error}
        </Alert>
      )}
      <Tabs
        value={search.tab ?? 'curves'}
        onChange={(tab) => navigate({ search: (before) => ({ ...before, tab: tab ?? undefined }), replace: true })}
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
          <CurvesTab item={item} />
        </Tabs.Panel>
        <Tabs.Panel value="rungs" pt="md">
          {item.method === 'pbt' ? <LineageView item={item} /> : <RungsTab item={item} />}
        </Tabs.Panel>
        <Tabs.Panel value="trials" pt="md">
          <Trials item={item} />
        </Tabs.Panel>
        <Tabs.Panel value="hyperparameters" pt="md">
          <HyperparametersTab item={item} />
        </Tabs.Panel>
        <Tabs.Panel value="logs" pt="md">
          <LogView
            source={{ experiment: item.id }}
            search={search}
            live={item.ended_us === null}
            onChange={(changed) => navigate({ search: (before) => ({ ...before, ...changed }), replace: true })}
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
