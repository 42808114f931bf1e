import { Alert, Anchor, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ExperimentDetail } from '../../api/openapi'
import { trials } from '../../api/queries'
import { inexact } from '../../lib/inexactTrials'

/** Says what breaks the exactness of a resume, whatever tab is open. */
export function InexactTrials({ item }: { item: ExperimentDetail }) {
  const { told, more } = inexact(useQuery(trials(item.id)).data ?? [])
  if (told.length === 0) return null
  return (
    <Alert color="yellow" title="Trials are not resumed exactly">
      {told.map((one) => (
        <Text key={one.sentence} size="sm">
          {one.sentence} (
          <Anchor component={Link} to={`/trials/${item.id}-${one.first}`} size="sm" underline="always">
            trial {one.first}
          </Anchor>
          {one.trials > 1 && ` and ${(one.trials - 1).toLocaleString('en')} more`})
        </Text>
      ))}
      {more > 0 && (
        <Text size="sm">And for {more.toLocaleString('en')} more reasons, which the trials' pages have.</Text>
      )}
    </Alert>
  )
}
