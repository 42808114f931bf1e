import { Alert, Anchor, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ExperimentDetail } from '../../api/openapi'
import { trials } from '../../api/queries'
import { toldFailed } from '../../lib/failedTrials'

/** Says that trials failed as soon as they do, whatever tab is open; a screen reader reads it out. */
export function FailedTrials({ item }: { item: ExperimentDetail }) {
  const failed = (item.trials as Record<string, number>).failed ?? 0
  const told = toldFailed(useQuery({ ...trials(item.id), enabled: failed > 0 }).data ?? [])
  if (failed === 0 || told === undefined) return null
  return (
    <Alert color="red" title={told.title} role="alert">
      <Text size="sm" style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }}>
        <Anchor component={Link} to={`/trials/${item.id}-${told.first.number}`} size="sm" underline="always">
          Trial {told.first.number}
        </Anchor>
        {told.error && `: ${told.error}`}
      </Text>
    </Alert>
  )
}
