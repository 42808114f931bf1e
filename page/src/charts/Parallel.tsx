import { Box, Text } from '@mantine/core'
import { type PointerEvent, useCallback, useMemo, useRef, useState } from 'react'
import { type Axis, ticksOf, valueAt } from '../lib/axes'
import { scaleColor } from '../lib/colors'
import { type Brushes, type Parallel as Data, goodness, isChosen, type Line, nearestLine } from '../lib/parallel'
import { useDark } from '../parts/useDark'
import { useCanvas } from './useCanvas'

const HEIGHT_PX = 360
const TOP_PX = 34
const BOTTOM_PX = 14
const SIDE_PX = 48
const GRIP_PX = 14
const NEAR_PX = 8
const STEP = 0.05
const BRUSH_MIN = 0.01
const AXIS_PX_MIN = 70
const SHADES = 24
/** As many can be told apart. */
const THIN_FROM = 200
/** So many lines are drawn as thin as the screen can: such a line costs a tenth of a thicker one. */

interface Props {
  data: Data
  smallerIsBetter: boolean
  brushes: Brushes
  picked: string
  onBrush: (brushes: Brushes) => void
  onPick: (trial: string) => void
}

/** Each trial is a line over its hyperparameters to its metric. Dragging along an axis chooses the lines that go through there. */
export function Parallel({ data, smallerIsBetter, brushes, picked, onBrush, onPick }: Props) {
  const dark = useDark()
  const { axes, lines } = data
  const inner = HEIGHT_PX - TOP_PX - BOTTOM_PX
  const good = useMemo(() => goodness(lines, smallerIsBetter), [lines, smallerIsBetter])
  // The best lines are drawn last, above the others.
  const order = useMemo(() => [...lines].sort((a, b) => (good(a.metric) ?? -1) - (good(b.metric) ?? -1)), [lines, good])
  const xsOf = useCallback(
    (width: number) => axes.map((_, at) => SIDE_PX + (at * (width - 2 * SIDE_PX)) / Math.max(1, axes.length - 1)),
    [axes],
  )
  const draw = useCallback(
    (to: CanvasRenderingContext2D, width: number) => {
      const xs = xsOf(width)
      to.clearRect(0, 0, width, HEIGHT_PX)
      const trace = (line: Line) => {
        let pen = false
        line.places.forEach((place, at) => {
          const [x, y] = [xs[at] ?? 0, TOP_PX + (1 - (place ?? 0)) * inner]
          if (place === undefined) pen = false
          else if (pen) to.lineTo(x, y)
          else to.moveTo(x, y)
          if (place !== undefined) pen = true
        })
      }
      // Lines of one look are one path: thousands of paths take a second to draw.
      const stroke = (some: readonly Line[], color: string, alpha: number, thick: number) => {
        to.strokeStyle = color
        to.globalAlpha = alpha
        to.lineWidth = some.length > THIN_FROM ? Math.min(thick, 1 / window.devicePixelRatio) : thick
        to.beginPath()
        for (const line of some) trace(line)
        to.stroke()
      }
      const groups = new Map<number | undefined, Line[]>()
      const others: Line[] = []
      for (const line of order) {
        if (!isChosen(line, axes, brushes)) {
          others.push(line)
          continue
        }
        const part = good(line.metric)
        const shade = part === undefined ? undefined : Math.round(part * SHADES) / SHADES
        const group = groups.get(shade)
        if (group === undefined) groups.set(shade, [line])
        else group.push(line)
      }
      const chosen = order.length - others.length
      stroke(others, dark ? '#868e96' : '#adb5bd', Math.max(0.1, Math.min(0.25, 20 / order.length)), 1)
      const alpha = Math.max(0.25, Math.min(0.9, 60 / chosen))
      for (const [shade, some] of groups)
        stroke(
          some,
          shade === undefined ? '#868e96' : scaleColor(shade, dark),
          shade === undefined ? 0.3 : alpha,
          chosen > THIN_FROM ? Math.min(1.4, 1 / window.devicePixelRatio) : 1.4,
        )
      const one = order.find((line) => line.id === picked)
      if (one !== undefined) stroke([one], '#D55E00', 1, 3)
      to.globalAlpha = 1
    },
    [axes, order, brushes, picked, dark, good, inner, xsOf],
  )
  const { ref, canvas, width } = useCanvas(HEIGHT_PX, draw)
  const wide = Math.max(width, 0)
  const xs = xsOf(wide)
  const chosen = useMemo(() => order.filter((line) => isChosen(line, axes, brushes)), [order, axes, brushes])
  return (
    <Box style={{ overflowX: 'auto' }}>
      <Box ref={ref} pos="relative" h={HEIGHT_PX} miw={axes.length * AXIS_PX_MIN}>
        <canvas
          ref={canvas}
          role="img"
          aria-label={`Parallel coordinates of ${lines.length} trials over ${axes.map((axis) => axis.name).join(', ')}`}
          style={{ width: wide, height: HEIGHT_PX, display: 'block' }}
          onClick={(event) => {
            const box = event.currentTarget.getBoundingClientRect()
            const y = event.clientY - box.top - TOP_PX
            const line = nearestLine(chosen, event.clientX - box.left, y, xs, inner, NEAR_PX)
            onPick(line === undefined || line.id === picked ? '' : line.id)
          }}
        />
        <svg
          width={wide}
          height={HEIGHT_PX}
          style={{ position: 'absolute', inset: 0, pointerEvents: 'none' }}
          role="group"
          aria-label="Axes"
        >
          {axes.map((axis, at) => (
            <AxisMark
              key={axis.name}
              axis={axis}
              x={xs[at] ?? 0}
              inner={inner}
              brush={brushes[axis.name]}
              last={at === axes.length - 1}
              onBrush={(brush) => {
                const { [axis.name]: _, ...others } = brushes
                onBrush(brush === undefined ? others : { ...others, [axis.name]: brush })
              }}
            />
          ))}
        </svg>
      </Box>
      <Text size="xs" c="dimmed">
        Drag along an axis to choose trials; a click there, or Escape, takes the choice back. With the keyboard: arrows
        move it, with Shift they widen it. The clearest lines are the best.
      </Text>
    </Box>
  )
}

interface MarkProps {
  axis: Axis
  x: number
  inner: number
  brush: [number, number] | undefined
  last: boolean
  onBrush: (brush: [number, number] | undefined) => void
}

const clip = (place: number) => Math.min(1, Math.max(0, place))

function AxisMark({ axis, x, inner, brush, last, onBrush }: MarkProps) {
  const begun = useRef<number | undefined>(undefined)
  const [drawn, setDrawn] = useState<[number, number]>()
  const placeOf = (event: PointerEvent<SVGRectElement>) => {
    const box = event.currentTarget.getBoundingClientRect()
    return clip(1 - (event.clientY - box.top) / box.height)
  }
  const sorted = (a: number, b: number): [number, number] => (a < b ? [a, b] : [b, a])
  const key = (name: string, wide: boolean): [number, number] | undefined => {
    const [low, high] = brush ?? [0, 1]
    const up = name === 'ArrowUp' ? STEP : -STEP
    if (brush === undefined) return up > 0 ? [0.5, 1] : [0, 0.5]
    if (wide) return [low, clip(Math.max(low + STEP, high + up))]
    return low + up < -1e-9 || high + up > 1 + 1e-9 ? brush : [clip(low + up), clip(high + up)]
  }
  const shown = drawn ?? brush
  const told = shown === undefined ? 'all' : `${valueAt(axis, shown[0])} to ${valueAt(axis, shown[1])}`
  return (
    <g>
      <line x1={x} x2={x} y1={TOP_PX} y2={TOP_PX + inner} stroke="currentColor" strokeOpacity={0.6} />
      <text x={x} y={14} textAnchor="middle" fontSize={12} fontWeight={600} fill="currentColor">
        {axis.name.length > 18 ? `${axis.name.slice(0, 17)}…` : axis.name}
        <title>{axis.name}</title>
      </text>
      {ticksOf(axis).map(([place, label]) => (
        <text
          key={place}
          x={last ? x - 6 : x + 6}
          y={TOP_PX + (1 - place) * inner + 4}
          fontSize={10}
          textAnchor={last ? 'end' : 'start'}
          fill="currentColor"
          stroke="var(--mantine-color-body)"
          strokeWidth={3}
          paintOrder="stroke"
        >
          {label.length > 14 ? `${label.slice(0, 13)}…` : label}
        </text>
      ))}
      {shown !== undefined && (
        <rect
          x={x - GRIP_PX / 2}
          y={TOP_PX + (1 - shown[1]) * inner}
          width={GRIP_PX}
          height={(shown[1] - shown[0]) * inner}
          fill="var(--mantine-primary-color-filled)"
          fillOpacity={0.35}
          stroke="var(--mantine-primary-color-filled)"
        />
      )}
      <rect
        x={x - GRIP_PX}
        y={TOP_PX}
        width={2 * GRIP_PX}
        height={inner}
        fill="transparent"
        style={{ pointerEvents: 'all', cursor: 'ns-resize', touchAction: 'none' }}
        role="slider"
        tabIndex={0}
        aria-label={`Choose by ${axis.name}`}
        aria-valuetext={told}
        aria-valuemin={0}
        aria-valuemax={1}
        aria-valuenow={shown?.[0] ?? 0}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId)
          begun.current = placeOf(event)
        }}
        onPointerMove={(event) => begun.current !== undefined && setDrawn(sorted(begun.current, placeOf(event)))}
        onPointerUp={() => {
          begun.current = undefined
          setDrawn(undefined)
          onBrush(drawn !== undefined && drawn[1] - drawn[0] > BRUSH_MIN ? drawn : undefined)
        }}
        onKeyDown={(event) => {
          if (event.key === 'Escape') onBrush(undefined)
          else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
            event.preventDefault()
            onBrush(key(event.key, event.shiftKey))
          }
        }}
      />
    </g>
  )
}
