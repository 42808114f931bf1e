import { Group, SegmentedControl, Select, Slider, Stack, Switch, Text } from '@mantine/core'
import { getRouteApi } from '@tanstack/react-router'
import { useMemo } from 'react'
import type { Compared } from '../../api/compared'
import { Curves } from '../../charts/Curves'
import { curvesOf, metricNames, type XAxis } from '../../lib/curves'
import { ResetZoom } from '../../parts/ResetZoom'
import { useChange } from './useChange'

const route = getRouteApi('/compare')

/** The curves of all items in one picture. */
export function ComparedCurves({ found }: { found: Compared[] }) {
  const search = route.useSearch()
  const change = useChange()
  const points = useMemo(
    () => found.flatMap((one) => one.validations.map((point) => ({ ...point, trial_id: one.reference }))),
    [found],
  )
  const names = useMemo(() => metricNames(points), [points])
  const metric = search.metric ?? found[0]?.experiment.metric ?? names[0] ?? ''
  const axis: XAxis = search.x ?? 'batches'
  const curves = useMemo(() => curvesOf(points, metric, axis), [points, metric, axis])
  if (points.length === 0)
    return (
      <Text c="dimmed" py="xl" ta="center">
        None of them has validated yet.
      </Text>
    )
  return (
    <Stack>
      <Group>
        <Select
          aria-label="Metric"
          data={names}
          value={metric}
          onChange={(name) => change({ metric: name ?? undefined, zoom: undefined })}
        />
        <SegmentedControl
          aria-label="Horizontal axis"
          value={axis}
          onChange={(x) => change({ x: x as XAxis, zoom: undefined })}
          data={['length', 'batches', 'time']}
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
      </Group>
      <Curves
        curves={curves}
        xLabel={axis === 'time' ? 'seconds' : axis}
        yLabel={metric}
        label={`${metric} of ${curves.trials.join(', ')} by ${axis}`}
        logY={search.log ?? false}
        smoothing={search.smooth ?? 0}
        focused={search.item ?? ''}
        onFocus={(item) => change({ item: item || undefined })}
        zoom={search.zoom}
        onZoom={(zoom) => change({ zoom })}
      />
    </Stack>
  )
}
