import { Anchor, Button, Group, SegmentedControl, Select, Stack, Switch, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { useMemo } from 'react'
import { importance } from '../../api/experiments'
import type { ExperimentDetail, TrialView } from '../../api/openapi'
import { trials } from '../../api/queries'
import { Dots } from '../../charts/Dots'
import { Importance } from '../../charts/Importance'
import { Parallel } from '../../charts/Parallel'
import { logNames, placeOn } from '../../lib/axes'
import { type ExperimentSearch, HP_VIEWS, type HpView } from '../../lib/experimentSearch'
import { shownNumber, shownValue } from '../../lib/numbers'
import { type Parallel as Data, goodness, isChosen, type Line, parallelOf } from '../../lib/parallel'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { FrontView } from './FrontView'

const route = getRouteApi('/experiments/$id')
const NAMED_MAX = 10
const FEW_TRIALS = 20
const LABELS: Record<HpView, string> = {
  parallel: 'Parallel',
  scatter: 'Scatter',
  front: 'Pareto',
  importance: 'Importance',
}

export function HyperparametersTab({ item }: { item: ExperimentDetail }) {
  const query = useQuery(trials(item.id))
  return <QueryBoundary query={query}>{(list) => <Views item={item} list={list} />}</QueryBoundary>
}

function useChange() {
  const navigate = route.useNavigate()
  return (changed: Partial<ExperimentSearch>) =>
    navigate({ search: (before) => ({ ...before, ...changed }), replace: true })
}

function Views({ item, list }: { item: ExperimentDetail; list: TrialView[] }) {
  const search = route.useSearch()
  const change = useChange()
  const view = search.hp ?? 'parallel'
  const data = useMemo(() => {
    const logs = logNames((item.config as { hyperparameters?: unknown }).hyperparameters)
    return parallelOf(list, item.metric, logs)
  }, [list, item.metric, item.config])
  return (
    <Stack>
      <SegmentedControl
        aria-label="Picture"
        value={view}
        onChange={(hp) => change({ hp: hp as HpView })}
        data={HP_VIEWS.map((value) => ({ value, label: LABELS[value] }))}
        w="fit-content"
      />
      {view === 'front' ? (
        <FrontView item={item} />
      ) : view === 'importance' ? (
        <ImportanceView item={item} />
      ) : data.axes.length < 2 ? (
        <Text c="dimmed" py="xl" ta="center">
          {list.length < 2
            ? 'There are too few trials to compare.'
            : 'No hyperparameter differs between the trials, or none has a metric yet.'}
        </Text>
      ) : view === 'parallel' ? (
        <ParallelView item={item} data={data} />
      ) : (
        <ScatterView item={item} data={data} />
      )}
    </Stack>
  )
}

interface Props {
  item: ExperimentDetail
  data: Data
}

function ParallelView({ item, data }: Props) {
  const search = route.useSearch()
  const change = useChange()
  const brushes = useMemo(() => search.brush ?? {}, [search.brush])
  const chosen = useMemo(() => data.lines.filter((line) => isChosen(line, data.axes, brushes)), [data, brushes])
  const sign = item.smaller_is_better ? 1 : -1
  const best = chosen
    .filter((line) => line.metric !== undefined)
    .sort((a, b) => sign * ((a.metric ?? 0) - (b.metric ?? 0)))
    .slice(0, NAMED_MAX)
  const picked = data.lines.find((line) => line.id === search.trial)
  return (
    <Stack>
      <Parallel
        data={data}
        smallerIsBetter={item.smaller_is_better}
        brushes={brushes}
        picked={search.trial ?? ''}
        onBrush={(brush) => change({ brush: Object.keys(brush).length > 0 ? brush : undefined })}
        onPick={(trial) => change({ trial: trial || undefined })}
      />
      <Group>
        <Text size="sm" role="status">
          {chosen.length} of {data.lines.length} trials
        </Text>
        {Object.keys(brushes).length > 0 && (
          <Button size="compact-xs" variant="default" onClick={() => change({ brush: undefined })}>
            All trials
          </Button>
        )}
      </Group>
      {picked && <Told line={picked} />}
      <Text size="sm" c="dimmed">
        {best.length > 0 ? 'The best of them: ' : ''}
        {best.map((line) => (
          <Anchor key={line.id} component={Link} to={`/trials/${line.id}`} size="sm" mr="sm">
            {line.id} ({shownNumber(line.metric)})
          </Anchor>
        ))}
        {best.length > 1 && (
          <Anchor
            size="sm"
            renderRoot={(props) => (
              <Link {...props} to="/compare" search={{ items: best.map((line) => line.id).join(',') }} />
            )}
          >
            compare these
          </Anchor>
        )}
      </Text>
    </Stack>
  )
}

function Told({ line }: { line: Line }) {
  return (
    <Text size="sm">
      <Anchor component={Link} to={`/trials/${line.id}`} size="sm" fw={600}>
        Trial {line.id}
      </Anchor>{' '}
      {told(line.values)}
    </Text>
  )
}

const told = (values: Record<string, unknown>, between = ', ') =>
  Object.entries(values)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name} ${shownValue(value)}`)
    .join(between)

function ScatterView({ item, data }: Props) {
  const search = route.useSearch()
  const change = useChange()
  const names = data.axes.map((axis) => axis.name)
  const x = data.axes.find((axis) => axis.name === search.hx) ?? data.axes[0]
  const y = data.axes.find((axis) => axis.name === search.hy) ?? data.axes.find((axis) => axis !== x)
  const good = useMemo(() => goodness(data.lines, item.smaller_is_better), [data, item.smaller_is_better])
  const dots = useMemo(
    () =>
      data.lines.flatMap((line) => {
        if (x === undefined || y === undefined) return []
        const [px, py] = [placeOn(x, line.values[x.name]), placeOn(y, line.values[y.name])]
        if (px === undefined || py === undefined) return []
        return [
          { id: line.id, x: px, y: py, good: good(line.metric), text: `Trial ${line.id}\n${told(line.values, '\n')}` },
        ]
      }),
    [data, x, y, good],
  )
  if (x === undefined || y === undefined) return null
  const picked = data.lines.find((line) => line.id === search.trial)
  return (
    <Stack>
      <Group>
        <Select label="Across" data={names} value={x.name} onChange={(hx) => change({ hx: hx ?? undefined })} w={200} />
        <Select label="Up" data={names} value={y.name} onChange={(hy) => change({ hy: hy ?? undefined })} w={200} />
        <Switch
          label="heat map"
          mt="lg"
          checked={search.heat ?? false}
          onChange={(event) => change({ heat: event.currentTarget.checked || undefined })}
        />
      </Group>
      <Dots
        x={x}
        y={y}
        dots={dots}
        cells={search.heat ?? false}
        picked={search.trial ?? ''}
        onPick={(trial) => change({ trial: trial || undefined })}
        label={`${dots.length} trials by ${x.name} and ${y.name}, coloured by ${item.metric}`}
      />
      <Text size="xs" c="dimmed">
        {search.heat ? `Each cell has the mean of its trials' best ${item.metric}. ` : ''}The clearer a colour, the
        better its {item.metric}.
      </Text>
      {picked && <Told line={picked} />}
    </Stack>
  )
}

function ImportanceView({ item }: { item: ExperimentDetail }) {
  const query = useQuery(importance(item.id))
  return (
    <QueryBoundary query={query}>
      {(found) => (
        <Stack maw={640}>
          <Text size="sm" c="dimmed">
            Part of the variance of {found.metric} that each hyperparameter explains by itself, by fANOVA over{' '}
            {found.compared} trials. What is missing to 100 % are effects of several together.
            {found.compared < FEW_TRIALS ? ' With so few trials this says little.' : ''}
          </Text>
          <Importance parts={found.importances} />
          {found.left_out.length > 0 && (
            <Text size="sm" c="dimmed">
              Left out, as they do not differ or some trials lack them: {found.left_out.join(', ')}.
            </Text>
          )}
          <Button variant="default" w="fit-content" loading={query.isFetching} onClick={() => query.refetch()}>
            Compute again
          </Button>
        </Stack>
      )}
    </QueryBoundary>
  )
}
