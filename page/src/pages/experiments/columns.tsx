import { Anchor, Checkbox, Group, Progress, Text, Tooltip } from '@mantine/core'
import { Link } from '@tanstack/react-router'
import { createColumnHelper, type TableFeatures } from '@tanstack/react-table'
import type { ExperimentView, SparkView } from '../../api/openapi'
import { Spark } from '../../charts/Spark'
import { shownNumber, wholeValue } from '../../lib/numbers'
import { duration, moment, secondsBetween } from '../../lib/time'
import { StateBadge } from '../../parts/StateBadge'

const NAME_PX = 260
const LABELS_PX = 100
const USER_PX = 90
const METRIC_PX = 150
/** So that all columns that are shown at first fit into a window of 1,280 pixels, whatever people name things. */

const helper = createColumnHelper<TableFeatures, ExperimentView>()

/** Columns that the table can be sorted by, with the value that is compared. */
export const SORTED_BY: Record<string, (item: ExperimentView) => string | number | null | undefined> = {
  id: (item) => item.id,
  name: (item) => item.name,
  state: (item) => item.state,
  method: (item) => item.method,
  best: (item) => item.best_metric,
  user: (item) => item.user,
  workspace: (item) => item.workspace,
  pool: (item) => item.pool,
  priority: (item) => item.priority,
  submitted: (item) => item.submitted_us,
}

/** Fields of an experiment in the table's file. */
export const FIELDS = [
  'id',
  'name',
  'state',
  'method',
  'metric',
  'best_metric',
  'best_trial_id',
  'user',
  'workspace',
  'pool',
  'priority',
  'labels',
  'submitted_us',
  'ended_us',
] as const

const ENDED = ['completed', 'early_stopped', 'failed', 'canceled']

function trialsDone(item: ExperimentView): [number, number] {
  const counts = Object.entries(item.trials as Record<string, number>)
  const all = counts.reduce((sum, [, count]) => sum + count, 0)
  const done = counts.reduce((sum, [state, count]) => sum + (ENDED.includes(state) ? count : 0), 0)
  return [done, Math.max(all, item.max_trials ?? 0)]
}

export interface Selection {
  chosen: ReadonlySet<number>
  onChoose: (id: number, chosen: boolean) => void
}

/** Columns that can be left out, with their names. */
export const OPTIONAL: Record<string, string> = {
  state: 'State',
  method: 'Method',
  trials: 'Trials ended',
  best: 'Best',
  spark: 'Curve',
  user: 'User',
  workspace: 'Workspace',
  pool: 'Pool',
  priority: 'Priority',
  submitted: 'Submitted',
}

export function columnsOf(selection: Selection, sparks: ReadonlyMap<number, SparkView>, without: readonly string[]) {
  const all = [...selecting(selection), ...COLUMNS, ...drawn(sparks)]
  const order = ['choose', 'id', 'name', ...Object.keys(OPTIONAL)]
  return order.filter((id) => !without.includes(id)).flatMap((id) => all.find((column) => column.id === id) ?? [])
}

const selecting = ({ chosen, onChoose }: Selection) =>
  helper.columns([
    helper.display({
      id: 'choose',
      header: '',
      cell: ({ row: { original: item } }) => (
        <Checkbox
          size="xs"
          aria-label={`Choose experiment ${item.id}`}
          checked={chosen.has(item.id)}
          onChange={(event) => onChoose(item.id, event.currentTarget.checked)}
        />
      ),
    }),
  ])

const drawn = (sparks: ReadonlyMap<number, SparkView>) =>
  helper.columns([
    helper.display({
      id: 'spark',
      header: 'Curve',
      cell: ({ row: { original: item } }) => {
        const found = sparks.get(item.id)
        return found === undefined ? null : (
          <Spark x={found.batches} y={found.values} label={`${item.metric} of the best trial of ${item.name}`} />
        )
      },
    }),
  ])

const COLUMNS = helper.columns([
  helper.display({ id: 'id', header: 'No.', cell: ({ row }) => row.original.id }),
  helper.display({
    id: 'name',
    header: 'Name',
    cell: ({ row: { original: item } }) => (
      <Group gap="xs" wrap="nowrap">
        <Anchor component={Link} to={`/experiments/${item.id}`} fw={500} truncate maw={NAME_PX} title={item.name}>
          {item.name}
        </Anchor>
        <Text size="xs" c="dimmed" truncate maw={LABELS_PX} title={item.labels.join(', ')}>
          {item.labels.join(' · ')}
        </Text>
      </Group>
    ),
  }),
  helper.display({ id: 'state', header: 'State', cell: ({ row }) => <StateBadge state={row.original.state} /> }),
  helper.display({ id: 'method', header: 'Method', cell: ({ row }) => row.original.method }),
  helper.display({
    id: 'trials',
    header: 'Trials ended',
    cell: ({ row }) => {
      const [done, all] = trialsDone(row.original)
      return (
        <Group gap="xs" wrap="nowrap">
          <Progress value={all === 0 ? 0 : (100 * done) / all} w={60} aria-label="Trials ended" />
          <Text size="xs">
            {done} of {all}
          </Text>
        </Group>
      )
    },
  }),
  helper.display({
    id: 'best',
    header: 'Best',
    cell: ({ row: { original: item } }) => (
      <Text size="sm" title={`${wholeValue(item.best_metric)} ${item.metric}`} truncate maw={METRIC_PX}>
        {shownNumber(item.best_metric)}
        <Text span c="dimmed" size="xs">
          {item.best_metric == null ? '' : ` ${item.metric}`}
        </Text>
      </Text>
    ),
  }),
  helper.display({ id: 'pool', header: 'Pool', cell: ({ row }) => row.original.pool }),
  helper.display({ id: 'priority', header: 'Priority', cell: ({ row }) => row.original.priority }),
  helper.display({
    id: 'user',
    header: 'User',
    cell: ({ row: { original: item } }) => (
      <Text size="sm" truncate maw={USER_PX} title={item.user}>
        {item.user}
      </Text>
    ),
  }),
  helper.display({ id: 'workspace', header: 'Workspace', cell: ({ row }) => row.original.workspace }),
  helper.display({
    id: 'submitted',
    header: 'Submitted',
    cell: ({ row: { original: item } }) => (
      <Tooltip label={took(item)}>
        <span>{moment(item.submitted_us)}</span>
      </Tooltip>
    ),
  }),
])

function took(item: ExperimentView): string {
  return item.ended_us == null ? 'goes on' : `took ${duration(secondsBetween(item.submitted_us, item.ended_us))}`
}
