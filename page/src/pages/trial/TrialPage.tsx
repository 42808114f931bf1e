import { Alert, Anchor, Badge, Breadcrumbs, Group, Stack, Tabs, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import type { ExperimentDetail, TrialView } from '../../api/openapi'
import { experiment } from '../../api/queries'
import { trial } from '../../api/trials'
import { flat } from '../../lib/flatNames'
import { lengthUnit, shownLength } from '../../lib/lengths'
import { liveTrial } from '../../lib/states'
import { duration, moment, secondsBetween } from '../../lib/time'
import { experimentOf, type TrialTab } from '../../lib/trialSearch'
import { Facts } from '../../parts/Facts'
import { LogView } from '../../parts/LogView'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { StateBadge } from '../../parts/StateBadge'
import { Value } from '../../parts/Value'
import { NotFound } from '../NotFound'
import { CheckpointsTab } from './CheckpointsTab'
import { MetricsTab } from './MetricsTab'
import { RecordTab } from './RecordTab'
import { RunsTab } from './RunsTab'

const route = getRouteApi('/trials/$id')

const TABS: [TrialTab, string][] = [
  ['curves', 'Curves'],
  ['runs', 'Runs'],
  ['checkpoints', 'Checkpoints'],
  ['logs', 'Log'],
  ['record', 'Record'],
]

export function TrialPage() {
  const { id } = route.useParams()
  const of = experimentOf(id)
  return of === undefined ? <NotFound /> : <Known id={id} of={of} />
}

function Known({ id, of }: { id: string; of: number }) {
  const query = useQuery(trial(of, id))
  const parent = useQuery(experiment(of))
  return (
    <QueryBoundary query={query}>
      {(item) => <QueryBoundary query={parent}>{(found) => <Shown item={item} experiment={found} />}</QueryBoundary>}
    </QueryBoundary>
  )
}

function Shown({ item, experiment }: { item: TrialView; experiment: ExperimentDetail }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const live = liveTrial(item.state)
  return (
    <Stack>
      <Breadcrumbs>
        <Anchor component={Link} to="/" size="sm">
          Experiments
        </Anchor>
        <Anchor component={Link} to={`/experiments/${experiment.id}`} size="sm">
          {experiment.name}
        </Anchor>
      </Breadcrumbs>
      <Group gap="sm">
        <Title order={1} size="h2">
          Trial {item.id}
        </Title>
        <StateBadge state={item.state} />
        {experiment.best_trial_id === item.id && (
          <Badge variant="light" color="teal" tt="none">
            best of {experiment.name}
          </Badge>
        )}
      </Group>
      <Numbers item={item} experiment={experiment} />
      <Hyperparameters item={item} />
      <Text size="sm">{item.reason}</Text>
      <Troubles item={item} />
      <Tabs
        value={search.tab ?? 'curves'}
        onChange={(tab) =>
          navigate({ search: (before) => ({ ...before, tab: (tab as TrialTab | null) ?? undefined }), replace: true })
        }
        keepMounted={false}
      >
        <Tabs.List>
          {TABS.map(([value, label]) => (
            <Tabs.Tab key={value} value={value}>
              {label}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="curves" pt="md">
          <MetricsTab item={item} live={live} />
        </Tabs.Panel>
        <Tabs.Panel value="runs" pt="md">
          <RunsTab item={item} />
        </Tabs.Panel>
        <Tabs.Panel value="checkpoints" pt="md">
          <CheckpointsTab item={item} experiment={experiment} />
        </Tabs.Panel>
        <Tabs.Panel value="logs" pt="md">
          <LogView
            source={{ trial: item.id }}
            search={search}
            live={live}
            onChange={(changed) => navigate({ search: (before) => ({ ...before, ...changed }), replace: true })}
          />
        </Tabs.Panel>
        <Tabs.Panel value="record" pt="md">
          <RecordTab item={item} />
        </Tabs.Panel>
      </Tabs>
    </Stack>
  )
}

function Numbers({ item, experiment }: { item: TrialView; experiment: ExperimentDetail }) {
  const unit = lengthUnit(experiment.config)
  const until = item.ended_us ?? Date.now() * 1000
  return (
    <Facts
      facts={[
        [
          `Best ${experiment.metric}`,
          item.best_metric == null ? (
            '–'
          ) : (
            <>
              <Value of={item.best_metric} /> (batch {item.best_batches})
            </>
          ),
        ],
        ['Latest', <Value key="latest" of={item.latest_metric} />],
        ['Length', `${item.length} of ${shownLength(item.target_length, unit)}`],
        ['Runs', item.allocations],
        ['Failures', item.failures],
        ['Requested', moment(item.requested_us)],
        [item.ended_us == null ? 'For' : 'Took', duration(secondsBetween(item.requested_us, until))],
        ['Seed', <Value key="seed" of={item.seed} />],
      ]}
    />
  )
}

function Hyperparameters({ item }: { item: TrialView }) {
  return (
    <Group gap="xs" aria-label="Hyperparameters">
      {Object.entries(flat(item.hyperparameters)).map(([name, value]) => (
        <Badge key={name} variant="default" tt="none" fw={400} radius="sm" size="lg">
          {name}{' '}
          <b>
            <Value of={value} />
          </b>
        </Badge>
      ))}
    </Group>
  )
}

/** What one should know before one believes the curves: failures, slow ranks, losses of exactness. */
function Troubles({ item }: { item: TrialView }) {
  const slow = item.stragglers ?? []
  const left = item.excluded_agents ?? []
  return (
    <>
      {item.error && (
        <Alert color="red" title="It failed">
          <Text size="sm" style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }}>
            {item.error}
          </Text>
        </Alert>
      )}
      {item.restart_at_us != null && (
        <Alert color="yellow" title="It waits before its next start">
          {item.setbacks} runs in a row ended without progress; it may start again at {moment(item.restart_at_us)}.
        </Alert>
      )}
      {slow.length > 0 && (
        <Alert color="yellow" title="Slow workers hold up the others">
          {slow.map((one) => (
            <Text key={`${one.allocation_id} ${one.rank}`} size="sm">
              Rank {one.rank} on {one.agent_id} takes {duration(one.own_seconds)} for a step, where the others take{' '}
              {duration(one.usual_seconds)}.
            </Text>
          ))}
        </Alert>
      )}
      {(item.breaks ?? []).map((sentence) => (
        <Alert key={sentence} color="yellow" title="It is not resumed exactly">
          {sentence}
        </Alert>
      ))}
      {left.length > 0 && (
        <Text size="sm" c="dimmed">
          Because of a line in its log it is not placed on {left.join(', ')} again.
        </Text>
      )}
    </>
  )
}
