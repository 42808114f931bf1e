import { Anchor, Badge, Group, Progress, Text, Tooltip } from '@mantine/core'
import { Link } from '@tanstack/react-router'
import { createColumnHelper, type TableFeatures } from '@tanstack/react-table'
import type { ExperimentView } from '../../api/openapi'
import { shownNumber } from '../../lib/numbers'
import { duration, moment, secondsBetween } from '../../lib/time'
import { StateBadge } from '../../parts/StateBadge'

const helper = createColumnHelper<TableFeatures, ExperimentView>()

/** Columns that the table can be sorted by, with the value that is compared. */
export const SORTED_BY: Record<string, (item: ExperimentView) => string | number | null | undefined> = {
  id: (item) => item.id,
  name: (item) => item.name,
  state: (item) => item.state,
  method: (item) => item.method,
  best: (item) => item.best_metric,
  user: (item) => item.user,
  submitted: (item) => item.submitted_us,
}

const ENDED = ['completed', 'early_stopped', 'failed', 'canceled']

function trialsDone(item: ExperimentView): [number, number] {
  const counts = Object.entries(item.trials as Record<string, number>)
  const all = counts.reduce((sum, [, count]) => sum + count, 0)
  const done = counts.reduce((sum, [state, count]) => sum + (ENDED.includes(state) ? count : 0), 0)
  return [done, Math.max(all, item.max_trials ?? 0)]
}

export const columns = helper.columns([
  helper.display({ id: 'id', header: 'No.', cell: ({ row }) => row.original.id }),
  helper.display({
    id: 'name',
    header: 'Name',
    cell: ({ row: { original: item } }) => (
      <Group gap="xs" wrap="nowrap">
        <Anchor component={Link} to={`/experiments/${item.id}`} fw={500}>
          {item.name}
        </Anchor>
        {item.labels.map((label) => (
          <Badge key={label} size="xs" variant="outline" color="gray" tt="none">
            {label}
          </Badge>
        ))}
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
      <Text size="sm" title={item.metric}>
        {shownNumber(item.best_metric)}
        <Text span c="dimmed" size="xs">
          {item.best_metric == null ? '' : ` ${item.metric}`}
        </Text>
      </Text>
    ),
  }),
  helper.display({ id: 'user', header: 'User', cell: ({ row }) => row.original.user }),
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
