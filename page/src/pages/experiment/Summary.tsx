import { Anchor, Group, Progress, Stack, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { ExperimentDetail } from '../../api/openapi'
import type { Past } from '../../api/past'
import { trials } from '../../api/queries'
import { progressOf } from '../../lib/progress'
import { duration, moment, secondsBetween } from '../../lib/time'
import { Facts } from '../../parts/Facts'
import { Value } from '../../parts/Value'

/** How far it is and how long it still takes, its best trial, and the facts around it; at an earlier moment as they were then. */
export function Summary({ item, past }: { item: ExperimentDetail; past: Past | undefined }) {
  const now = past?.item.as_of_us ?? Date.now() * 1000
  const until = item.ended_us ?? now
  const facts: [string, ReactNode][] = [
    ['Method', item.method],
    [`Best ${item.metric}`, <Best key="best" item={item} />],
    ['User', item.user],
    ['Pool', item.pool],
    ['Priority', item.priority],
    ['Submitted', moment(item.submitted_us)],
    [item.ended_us == null ? 'Runs for' : 'Took', duration(secondsBetween(item.submitted_us, until))],
  ]
  if (item.wall_hours_max) {
    const seconds = (item.wall_seconds ?? 0) + (item.wall_since_us ? secondsBetween(item.wall_since_us, now) : 0)
    facts.push(['Has run', `${duration(seconds)} of ${duration(item.wall_hours_max * 3600)} at most`])
  }
  if (item.parent_id) facts.push([`${item.relation ?? 'Made'} of`, <Origin key="of" id={item.parent_id} />])
  return (
    <Stack gap="sm">
      {item.ended_us == null && <Bar item={item} past={past} now={now} />}
      <Facts facts={facts} />
      {item.description && <Text size="sm">{item.description}</Text>}
      {item.note && (
        <Text size="sm" style={{ whiteSpace: 'pre-wrap' }}>
          {item.note}
        </Text>
      )}
    </Stack>
  )
}

function Best({ item }: { item: ExperimentDetail }) {
  if (item.best_metric == null || item.best_trial_id == null) return '–'
  return (
    <>
      <Value of={item.best_metric} />{' '}
      <Anchor component={Link} to={`/trials/${item.best_trial_id}`} size="sm">
        trial {item.best_trial_id}
      </Anchor>
    </>
  )
}

function Origin({ id }: { id: string }) {
  return (
    <Anchor component={Link} to={id.includes('-') ? `/trials/${id}` : `/experiments/${id}`} size="sm">
      {id}
    </Anchor>
  )
}

function Bar({ item, past, now }: { item: ExperimentDetail; past: Past | undefined; now: number }) {
  const current = useQuery({ ...trials(item.id), enabled: past === undefined }).data
  const found = past?.trials ?? current
  if (found === undefined) return null
  const { part, ended, all, leftSeconds } = progressOf(item, found, now)
  return (
    <Group gap="sm">
      <Progress value={100 * part} w={220} aria-label="Progress" animated={item.state === 'active'} />
      <Text size="sm">
        {Math.floor(100 * part)} %, {ended} of {all} trials ended
        {leftSeconds === undefined ? '' : `, about ${duration(leftSeconds)} left at this pace`}
      </Text>
    </Group>
  )
}
