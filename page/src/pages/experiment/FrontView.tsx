import { Anchor, Group, Select, Stack, Switch, Table, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { useMemo } from 'react'
import type { ExperimentDetail } from '../../api/openapi'
import { front as frontOf, validations } from '../../api/queries'
import { Dots } from '../../charts/Dots'
import { axisOf, placeOn } from '../../lib/axes'
import { metricNames, type Point } from '../../lib/curves'
import type { ExperimentSearch } from '../../lib/experimentSearch'
import { shownNumber } from '../../lib/numbers'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { Value } from '../../parts/Value'

const route = getRouteApi('/experiments/$id')
const LISTED_MAX = 50

interface Objective {
  metric: string
  smaller_is_better: boolean
}

/** Trials by two metrics, those marked that no other one beats in both. */
export function FrontView({ item }: { item: ExperimentDetail }) {
  const query = useQuery(validations(item.id))
  return <QueryBoundary query={query}>{(points) => <Shown item={item} points={points as Point[]} />}</QueryBoundary>
}

function Shown({ item, points }: { item: ExperimentDetail; points: Point[] }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (changed: Partial<ExperimentSearch>) =>
    navigate({ search: (before) => ({ ...before, ...changed }), replace: true })
  const names = useMemo(() => metricNames(points), [points])
  const asked = (item.config as { searcher?: { objectives?: Objective[] | null } }).searcher?.objectives ?? []
  const others = names.filter((name) => name !== item.metric)
  const second = search.second ?? asked[0]?.metric ?? others[0]
  const smaller =
    search.larger === undefined
      ? (asked.find((one) => one.metric === second)?.smaller_is_better ?? true)
      : !search.larger
  const query = useQuery({ ...frontOf(item.id, second ?? '', smaller), enabled: second !== undefined })
  const found = useMemo(
    () =>
      (query.data?.trials ?? []).map(({ trial_id, values: [x = 0, y = 0], on_front }) => {
        return { trial: trial_id, x, y, onFront: on_front }
      }),
    [query.data],
  )
  const [x, y] = useMemo(
    () => [
      axisOf(
        item.metric,
        found.map((one) => one.x),
      ),
      axisOf(
        second ?? '',
        found.map((one) => one.y),
      ),
    ],
    [found, item.metric, second],
  )
  const dots = useMemo(
    () =>
      x === undefined || y === undefined
        ? []
        : found.map((one) => ({
            id: one.trial,
            x: placeOn(x, one.x) ?? 0,
            y: placeOn(y, one.y) ?? 0,
            good: one.onFront ? 1 : undefined,
            ringed: one.onFront,
            text: `Trial ${one.trial}\n${x.name} ${shownNumber(one.x)}\n${y.name} ${shownNumber(one.y)}`,
          })),
    [found, x, y],
  )
  if (second !== undefined && query.data === undefined) return <QueryBoundary query={query}>{() => null}</QueryBoundary>
  if (second === undefined || x === undefined || y === undefined)
    return (
      <Text c="dimmed" py="xl" ta="center">
        A Pareto front needs two metrics; the trials report {names.length === 0 ? 'none yet' : names.join(', ')}.
      </Text>
    )
  const better = query.data?.front.map((one) => one.trial_id) ?? []
  const front = better.flatMap((trial) => found.filter((one) => one.trial === trial))
  return (
    <Stack>
      <Group>
        <Select
          label={`${item.metric} and`}
          data={others}
          value={second}
          onChange={(name) => change({ second: name ?? undefined, larger: undefined })}
          w={220}
        />
        <Switch
          mt="lg"
          label={`a larger ${second} is better`}
          checked={!smaller}
          onChange={(event) => change({ larger: event.currentTarget.checked })}
        />
      </Group>
      <Dots
        x={x}
        y={y}
        dots={dots}
        cells={false}
        picked={search.trial ?? ''}
        onPick={(trial) => change({ trial: trial || undefined })}
        label={`${dots.length} trials by ${item.metric} and ${second}, ${front.length} of them on the Pareto front`}
      />
      <Text size="sm">
        No other trial beats these {front.length} of {found.length} in both metrics (the last validation of each that
        has both):
      </Text>
      <Table aria-label="Pareto front" maw={520}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Trial</Table.Th>
            <Table.Th>{item.metric}</Table.Th>
            <Table.Th>{second}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {front.slice(0, LISTED_MAX).map((one) => (
            <Table.Tr key={one.trial}>
              <Table.Td>
                <Anchor component={Link} to={`/trials/${one.trial}`} size="sm">
                  {one.trial}
                </Anchor>
              </Table.Td>
              <Table.Td>
                <Value of={one.x} />
              </Table.Td>
              <Table.Td>
                <Value of={one.y} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Stack>
  )
}
