import { Paper, Stack, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import type { ExperimentDetail } from '../../api/openapi'
import { usePastRungs } from '../../api/past'
import { rungs } from '../../api/queries'
import { Rungs } from '../../charts/Rungs'
import type { Rung } from '../../lib/rungs'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { DecisionSlider } from './DecisionSlider'

const route = getRouteApi('/experiments/$id')

export function RungsTab({ item }: { item: ExperimentDetail }) {
  const at = route.useSearch().at
  const now = useQuery({ ...rungs(item.id), enabled: at === undefined })
  const then = usePastRungs(item.id, at)
  return (
    <Stack>
      <DecisionSlider id={item.id} />
      <QueryBoundary query={at === undefined ? now : then}>
        {(found) => <Shown item={item} rungs={found} />}
      </QueryBoundary>
    </Stack>
  )
}

function Shown({ item, rungs }: { item: ExperimentDetail; rungs: Rung[] }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const picked = search.trial ?? ''
  const told = rungs.flatMap((rung) => rung.dots).filter((dot) => dot.trial === picked)
  return (
    <Stack>
      {rungs.length === 0 ? (
        <Text c="dimmed" py="xl" ta="center">
          {search.at === undefined ? 'Nothing was decided yet.' : 'Nothing was decided by then.'}
        </Text>
      ) : (
        <Rungs
          rungs={rungs}
          metric={item.metric}
          smallerIsBetter={item.smaller_is_better}
          picked={picked}
          onPick={(trial) =>
            navigate({
              search: (before) => ({ ...before, trial: trial === picked ? undefined : trial }),
              replace: true,
            })
          }
        />
      )}
      {told.length > 0 && (
        <Paper withBorder p="sm" role="status">
          <Text fw={600}>Trial {picked}</Text>
          {told.map((dot) => (
            <Text key={dot.position} size="sm">
              {dot.sentence}
            </Text>
          ))}
        </Paper>
      )}
    </Stack>
  )
}
