import { Alert, Anchor, Badge, Group, Stack, Tabs, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import type { ExperimentDetail } from '../../api/openapi'
import { experiment } from '../../api/queries'
import { shownNumber } from '../../lib/numbers'
import { duration, moment, secondsBetween } from '../../lib/time'
import { Asked } from '../../parts/Asked'
import { StateBadge } from '../../parts/StateBadge'
import { Actions } from './Actions'
import { Configuration } from './Configuration'
import { CurvesTab } from './CurvesTab'
import { RungsTab } from './RungsTab'
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
      <Facts item={item} />
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
          <Tabs.Tab value="rungs">Rungs</Tabs.Tab>
          <Tabs.Tab value="trials">Trials</Tabs.Tab>
          <Tabs.Tab value="configuration">Configuration</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="curves" pt="md">
          <CurvesTab item={item} />
        </Tabs.Panel>
        <Tabs.Panel value="rungs" pt="md">
          <RungsTab item={item} />
        </Tabs.Panel>
        <Tabs.Panel value="trials" pt="md">
          <Trials item={item} />
        </Tabs.Panel>
        <Tabs.Panel value="configuration" pt="md">
          <Configuration item={item} />
        </Tabs.Panel>
      </Tabs>
    </Stack>
  )
}

function Facts({ item }: { item: ExperimentDetail }) {
  const until = item.ended_us ?? Date.now() * 1000
  const facts: [string, string][] = [
    ['Method', item.method],
    [item.metric, item.best_metric == null ? '–' : `${shownNumber(item.best_metric)} (trial ${item.best_trial_id})`],
    ['User', item.user],
    ['Pool', item.pool],
    ['Submitted', moment(item.submitted_us)],
    [item.ended_us == null ? 'Runs for' : 'Took', duration(secondsBetween(item.submitted_us, until))],
  ]
  return (
    <Group gap="xl">
      {facts.map(([name, value]) => (
        <Stack key={name} gap={0}>
          <Text size="xs" c="dimmed">
            {name}
          </Text>
          <Text size="sm">{value}</Text>
        </Stack>
      ))}
      {item.parent_id && (
        <Stack gap={0}>
          <Text size="xs" c="dimmed">
            {item.relation ?? 'from'} of
          </Text>
          <Anchor component={Link} to={`/experiments/${item.parent_id.split('-')[0]}`} size="sm">
            {item.parent_id}
          </Anchor>
        </Stack>
      )}
    </Group>
  )
}
