import { Group, SegmentedControl, Select, Slider, Stack, Switch, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { useMemo } from 'react'
import type { ExperimentDetail } from '../../api/openapi'
import type { Past } from '../../api/past'
import { pictures } from '../../api/pictures'
import { validations } from '../../api/queries'
import { Curves } from '../../charts/Curves'
import { curvesOf, metricNames, type Point, type XAxis } from '../../lib/curves'
import type { ExperimentSearch } from '../../lib/experimentSearch'
import { lengthUnit } from '../../lib/lengths'
import { toldNotFinite } from '../../lib/notFinite'
import { columnsFor, drawnCurves, drawnOf, toldNotDrawn } from '../../lib/pictures'
import { OmissionNote } from '../../parts/OmissionNote'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { ResetZoom } from '../../parts/ResetZoom'

const route = getRouteApi('/experiments/$id')
const TRAINING = 'training/'
/** Begin of the URL's `metric` where it is one of training and not of validations. */

export function CurvesTab({ item, past }: { item: ExperimentDetail; past: Past | undefined }) {
  const query = useQuery({ ...validations(item.id), enabled: past === undefined })
  if (past !== undefined) return past.points && <Chart item={item} points={past.points} past={past} />
  return (
    <QueryBoundary query={query}>
      {(points) => <Chart item={item} points={points as Point[]} past={undefined} />}
    </QueryBoundary>
  )
}

function Chart({ item, points, past }: { item: ExperimentDetail; points: Point[]; past: Past | undefined }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (changed: Partial<ExperimentSearch>) =>
    navigate({ search: (before) => ({ ...before, ...changed }), replace: true })
  const names = useMemo(() => metricNames(points), [points])
  const metric = search.metric ?? item.metric
  const training = metric.startsWith(TRAINING)
  const shownAxis: XAxis = search.x ?? 'length'
  const unit = lengthUnit(item.config)
  const batches = training || unit === 'batches'
  const axis = batches && shownAxis === 'length' ? 'batches' : shownAxis
  const all = Object.values(item.trials as Record<string, number>).reduce((sum, count) => sum + count, 0)
  const trained = useQuery(
    pictures(item.id, {
      metrics: training ? [metric.slice(TRAINING.length)] : [],
      live: item.ended_us === null,
      points: columnsFor(all),
      times: axis === 'time',
    }),
  )
  const validated = useMemo(() => curvesOf(points, metric, axis), [points, metric, axis])
  const reached = useMemo(() => past && new Map(past.trials.map((trial) => [trial.id, trial.batches])), [past])
  const drawn = useMemo(
    () =>
      trained.data &&
      training &&
      drawnCurves(trained.data, metric.slice(TRAINING.length), axis === 'time' ? axis : 'batches', reached),
    [trained.data, training, metric, axis, reached],
  )
  const curves = drawn || validated
  const shown = axis === 'length' ? unit : axis === 'time' ? 'seconds' : 'batches'
  return (
    <Stack>
      <Group>
        <Select
          aria-label="Metric"
          data={[
            { group: 'Validation', items: names },
            {
              group: 'Training',
              items: (trained.data?.metrics ?? []).map((name) => ({ value: TRAINING + name, label: name })),
            },
          ]}
          value={metric}
          onChange={(name) => change({ metric: name ?? undefined, zoom: undefined })}
        />
        <SegmentedControl
          aria-label="Horizontal axis"
          value={axis}
          onChange={(x) => change({ x: x as XAxis, zoom: undefined })}
          data={[
            ...(unit === 'batches' ? [] : [{ value: 'length', label: unit, disabled: training }]),
            { value: 'batches', label: 'batches' },
            { value: 'time', label: 'time' },
          ]}
        />
        <Switch
          label="log"
          checked={search.log ?? false}
          onChange={(event) => change({ log: event.currentTarget.checked || undefined })}
        />
        <Group gap="xs">
          <Text size="sm">Smoothing</Text>
          <Slider
            w={140}
            min={0}
            max={0.95}
            step={0.05}
            label={(value) => value.toFixed(2)}
            thumbLabel="Smoothing"
            value={search.smooth ?? 0}
            onChange={(smooth) => change({ smooth: smooth || undefined })}
          />
        </Group>
        <ResetZoom zoom={search.zoom} onReset={() => change({ zoom: undefined })} />
        <Text size="sm" c="dimmed">
          {search.trial ? `Trial ${search.trial}` : `${drawnOf(curves.trials.length, all)}; click a curve to name it`}
        </Text>
      </Group>
      <OmissionNote
        told={training ? toldNotDrawn(trained.data, metric.slice(TRAINING.length)) : toldNotFinite(points, metric)}
      />
      {past !== undefined && training && (
        <Text size="sm" c="dimmed">
          Training metrics are not in the log: each curve ends at the batches that its trial had reported by then.
        </Text>
      )}
      {curves.trials.length === 0 ? (
        <Text c="dimmed" py="xl" ta="center">
          {training ? 'No trial had reported this metric' : 'No trial had validated'} {past ? 'by then' : 'so far'}.
        </Text>
      ) : (
        <Curves
          curves={curves}
          xLabel={shown}
          yLabel={training ? metric.slice(TRAINING.length) : metric}
          logY={search.log ?? false}
          smoothing={search.smooth ?? 0}
          focused={search.trial ?? ''}
          onFocus={(trial) => change({ trial: trial || undefined })}
          zoom={search.zoom}
          onZoom={(zoom) => change({ zoom })}
        />
      )}
    </Stack>
  )
}
