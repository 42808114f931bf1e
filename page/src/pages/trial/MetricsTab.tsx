import { Group, Paper, SegmentedControl, SimpleGrid, Slider, Stack, Switch, Text, TextInput } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { useMemo } from 'react'
import type { TrialView } from '../../api/openapi'
import { type TrainingPoints, trainingPoints, trialValidations } from '../../api/trials'
import { Curves } from '../../charts/Curves'
import { type MetricPoint, panelsOf } from '../../lib/metricPanels'
import { toldNotFinite } from '../../lib/notFinite'
import { type TrialAxis, type TrialSearch, zoomIn } from '../../lib/trialSearch'
import { OmissionNote } from '../../parts/OmissionNote'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { ResetZoom } from '../../parts/ResetZoom'

const route = getRouteApi('/trials/$id')
const PANELS_MAX = 24
const PANEL_PX = 240

export function MetricsTab({ item, live }: { item: TrialView; live: boolean }) {
  const validated = useQuery(trialValidations(item.experiment_id, item.id))
  const trained = useQuery(trainingPoints(item.experiment_id, item.id, item.allocations, live))
  return (
    <QueryBoundary query={validated}>
      {(validations) => (
        <QueryBoundary query={trained}>
          {(training) => <Panels item={item} training={training} validations={validations} />}
        </QueryBoundary>
      )}
    </QueryBoundary>
  )
}

interface Props {
  item: TrialView
  training: TrainingPoints
  validations: MetricPoint[]
}

function Panels({ item, training, validations }: Props) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (changed: Partial<TrialSearch>) =>
    navigate({ search: (before) => ({ ...before, ...changed }), replace: true })
  const axis: TrialAxis = search.x ?? 'batches'
  const panels = useMemo(
    () => panelsOf(training.points, validations, axis, item.requested_us),
    [training, validations, axis, item.requested_us],
  )
  const wanted = (search.metric ?? '').toLowerCase()
  const fitting = panels.filter((panel) => panel.metric.toLowerCase().includes(wanted))
  if (panels.length === 0)
    return (
      <Text c="dimmed" py="xl" ta="center">
        The trial has not reported a metric yet.
      </Text>
    )
  return (
    <Stack>
      <Group>
        <TextInput
          aria-label="Metrics"
          placeholder={`${panels.length} metrics; part of a name`}
          w={220}
          value={search.metric ?? ''}
          onChange={(event) => change({ metric: event.currentTarget.value || undefined })}
        />
        <SegmentedControl
          aria-label="Horizontal axis"
          value={axis}
          onChange={(x) => change({ x: x as TrialAxis, zoom: undefined, zoomed: undefined })}
          data={['batches', 'time']}
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
        <ResetZoom zoom={search.zoom} onReset={() => change({ zoom: undefined, zoomed: undefined })} />
        <Text size="sm" c="dimmed">
          {validations.length} validations
        </Text>
      </Group>
      {training.more && (
        <Text size="sm" c="dimmed">
          Of the training metrics the first {training.points.length} points are shown.
        </Text>
      )}
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        {fitting.slice(0, PANELS_MAX).map((panel) => (
          <Paper key={panel.metric} withBorder p="xs">
            <Text size="sm" fw={600}>
              {panel.metric}
            </Text>
            <OmissionNote told={toldNotFinite([...training.points, ...validations], panel.metric)} />
            <Curves
              curves={panel.curves}
              xLabel={axis === 'time' ? 'seconds' : 'batches'}
              yLabel={panel.metric}
              label={`${panel.metric} by ${axis}`}
              heightPx={PANEL_PX}
              logY={search.log ?? false}
              smoothing={search.smooth ?? 0}
              focused=""
              onFocus={() => undefined}
              zoom={zoomIn(search, panel.metric)}
              onZoom={(zoom) => change({ zoom, zoomed: zoom && panel.metric })}
            />
          </Paper>
        ))}
      </SimpleGrid>
      {fitting.length > PANELS_MAX && (
        <Text size="sm" c="dimmed">
          {fitting.length - PANELS_MAX} more metrics fit; a part of their names shows them.
        </Text>
      )}
    </Stack>
  )
}
