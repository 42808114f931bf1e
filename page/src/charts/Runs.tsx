import { Box, Group, Text } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { useMemo } from 'react'
import { type PhaseKind, phases, placesOf, type Run, type Saved, span } from '../lib/runs'
import { type SchemeColor, schemeColor } from '../lib/schemes'
import { duration, moment, secondsBetween } from '../lib/time'

const ROW_PX = 26
const BAR_PX = 14
const AXIS_PX = 24
const LABEL_PX = 34
const END_PX = 90
const MARK_PX = 4
const FIVE_TICKS_PX = 480

const COLORS: Record<PhaseKind, SchemeColor> = {
  starting: 'mark-orange',
  running: 'mark-blue',
  leaving: 'mark-purple',
}
const WORDS: Record<PhaseKind, string> = {
  starting: 'granted, starting',
  running: 'running',
  leaving: 'saving and leaving',
}
const FAILED = ['failed', 'lost']

interface Props {
  runs: Run[]
  checkpoints: Saved[]
  now: number
  picked: string
  onPick: (run: string) => void
}

/** Each run of a trial as a bar on one axis of time, with its checkpoints as marks and its end in a word. */
export function Runs({ runs, checkpoints, now, picked, onPick }: Props) {
  const { ref, width } = useElementSize()
  const [from, until] = useMemo(() => span(runs, now), [runs, now])
  const inner = Math.max(1, width - LABEL_PX - END_PX)
  const x = (time: number) => LABEL_PX + ((time - from) / (until - from)) * inner
  const height = AXIS_PX + runs.length * ROW_PX
  return (
    <Box ref={ref}>
      <svg width={width} height={height} role="group" aria-label="Runs of the trial in time">
        {(inner < FIVE_TICKS_PX ? [0, 1] : [0, 0.25, 0.5, 0.75, 1]).map((part) => (
          <g key={part}>
            <line
              x1={LABEL_PX + part * inner}
              x2={LABEL_PX + part * inner}
              y1={AXIS_PX - 4}
              y2={height}
              stroke="currentColor"
              strokeOpacity={0.15}
            />
            <text
              x={LABEL_PX + part * inner}
              y={14}
              fontSize={11}
              textAnchor={part === 0 ? 'start' : 'middle'}
              fill="currentColor"
              fillOpacity={0.75}
            >
              {part === 0 ? moment(from) : `+${duration(part * secondsBetween(from, until))}`}
            </text>
          </g>
        ))}
        {runs.map((run, index) => {
          const top = AXIS_PX + index * ROW_PX + (ROW_PX - BAR_PX) / 2
          const last = run.exited_us ?? run.released_us ?? now
          const ended = run.outcome ?? (run.released_us === null ? run.state : 'released')
          return (
            <g key={run.id}>
              <g
                role="button"
                tabIndex={0}
                aria-label={`Run ${index + 1} on ${placesOf(run)}: ${ended}`}
                aria-pressed={picked === run.id}
                style={{ cursor: 'pointer' }}
                onClick={() => onPick(run.id)}
                onKeyDown={(event) => (event.key === 'Enter' || event.key === ' ') && onPick(run.id)}
              >
                <rect
                  x={0}
                  y={AXIS_PX + index * ROW_PX}
                  width={width}
                  height={ROW_PX}
                  fill="currentColor"
                  fillOpacity={picked === run.id ? 0.09 : 0}
                />
                {phases(run, now).map((phase) => (
                  <rect
                    key={phase.kind}
                    x={x(phase.from)}
                    y={top}
                    width={Math.max(1.5, x(phase.until) - x(phase.from))}
                    height={BAR_PX}
                    fill={schemeColor(COLORS[phase.kind])}
                  >
                    <title>
                      {WORDS[phase.kind]} for {duration(secondsBetween(phase.from, phase.until))}
                    </title>
                  </rect>
                ))}
                {checkpoints
                  .filter((one) => one.saved_us >= run.granted_us && one.saved_us <= last)
                  .map((one) => (
                    <path
                      key={one.id}
                      d={`M${x(one.saved_us)} ${top - 3} l${MARK_PX} ${MARK_PX} l${-MARK_PX} ${MARK_PX} l${-MARK_PX} ${-MARK_PX} z`}
                      fill={one.damaged_us == null ? '#009E73' : '#D55E00'}
                      stroke="var(--mantine-color-body)"
                    >
                      <title>
                        Checkpoint {one.id} at batch {one.batches}
                      </title>
                    </path>
                  ))}
              </g>
              <text aria-hidden pointerEvents="none" x={4} y={top + 11} fontSize={12} fill="currentColor">
                {index + 1}
              </text>
              <text
                aria-hidden
                pointerEvents="none"
                x={x(last) + 6}
                y={top + 11}
                fontSize={12}
                fontWeight={FAILED.includes(ended) ? 600 : 400}
                fill={FAILED.includes(ended) ? '#D55E00' : 'currentColor'}
              >
                {FAILED.includes(ended) ? `✕ ${ended}` : ended}
              </text>
            </g>
          )
        })}
      </svg>
      <Group gap="md">
        {(Object.keys(WORDS) as PhaseKind[]).map((kind) => (
          <Text key={kind} size="xs" c="dimmed">
            <span style={{ color: schemeColor(COLORS[kind]) }}>■</span> {WORDS[kind]}
          </Text>
        ))}
        <Text size="xs" c="dimmed">
          <span style={{ color: '#009E73' }}>◆</span> checkpoint
        </Text>
      </Group>
    </Box>
  )
}
