import { Box, Button, Group, Text } from '@mantine/core'
import { type KeyboardEvent, type PointerEvent, useCallback, useMemo, useRef, useState } from 'react'
import { type Bar, moved, type Picture, type Range, rowKey, zoomed } from '../lib/slots'
import { duration, moment, secondsBetween } from '../lib/time'
import { useDark } from '../parts/useDark'
import { colorOfExperiment, drawSlots, type Layout, TOP_PX } from './slotsDrawing'
import { useCanvas } from './useCanvas'

const ROW_PX = 22
const HEIGHT_MAX_PX = 700
const ROW_MIN_PX = 3
const LEGEND_MAX = 12
const DRAG_PX = 5
const DAY_US = 86_400_000_000

interface Props {
  picture: Picture
  /** All that there is to see. */
  whole: Range
  /** What of it is shown; undefined: all. */
  range: Range | undefined
  onRange: (range: Range | undefined) => void
  picked: number | undefined
  onPick: (experiment: number | undefined) => void
}

/** Which experiment used which slot when. Drag to zoom; with the keyboard + and -, and arrows to move. */
export function Slots({ picture, whole, range, onRange, picked, onPick }: Props) {
  const dark = useDark()
  const row = Math.max(ROW_MIN_PX, Math.min(ROW_PX, HEIGHT_MAX_PX / Math.max(1, picture.rows.length)))
  const height = TOP_PX + row * picture.rows.length
  const index = useMemo(
    () => new Map(picture.rows.map((item, at) => [rowKey(item.agent, item.slot), at])),
    [picture.rows],
  )
  const shown = range ?? whole
  const layoutOf = useCallback(
    (width: number): Layout => ({ range: shown, left: width < 600 ? 72 : 130, width, row, index, dark, picked }),
    [shown, row, index, dark, picked],
  )
  const draw = useCallback(
    (to: CanvasRenderingContext2D, width: number) => {
      const long = shown.until - shown.from > DAY_US
      drawSlots(to, picture, layoutOf(width), (us) => (long ? moment(us).slice(5, 16) : moment(us).slice(11)))
    },
    [picture, shown, layoutOf],
  )
  const { ref, canvas, width } = useCanvas(height, draw)
  const begun = useRef<number | undefined>(undefined)
  const [drag, setDrag] = useState<[number, number]>()
  const [over, setOver] = useState<Bar>()
  const layout = layoutOf(Math.max(width, 1))
  const timeAt = (x: number) =>
    shown.from + ((x - layout.left) / Math.max(1, layout.width - layout.left)) * (shown.until - shown.from)

  const barAt = (event: PointerEvent): Bar | undefined => {
    const { offsetX, offsetY } = event.nativeEvent
    const at = Math.floor((offsetY - TOP_PX) / row)
    const time = timeAt(offsetX)
    return picture.bars.findLast(
      (bar) => index.get(rowKey(bar.agent, bar.slot)) === at && bar.from <= time && (bar.until ?? whole.until) >= time,
    )
  }
  const release = (event: PointerEvent) => {
    const from = begun.current
    begun.current = undefined
    setDrag(undefined)
    if (from === undefined) return
    const { offsetX } = event.nativeEvent
    if (Math.abs(offsetX - from) < DRAG_PX) {
      const bar = barAt(event)
      onPick(bar === undefined || bar.experiment === picked ? undefined : bar.experiment)
      return
    }
    const [low, high] = [timeAt(Math.min(from, offsetX)), timeAt(Math.max(from, offsetX))]
    onRange({ from: Math.round(Math.max(whole.from, low)), until: Math.round(Math.min(whole.until, high)) })
  }
  const press = (event: KeyboardEvent) => {
    if (event.key === '+' || event.key === '=') onRange(zoomed(shown, whole, 0.5))
    else if (event.key === '-') onRange(zoomed(shown, whole, 2))
    else if (event.key === '0' || event.key === 'Escape') onRange(undefined)
    else if (range !== undefined && event.key === 'ArrowLeft') onRange(moved(shown, whole, -0.25))
    else if (range !== undefined && event.key === 'ArrowRight') onRange(moved(shown, whole, 0.25))
    else return
    event.preventDefault()
  }
  return (
    <Box ref={ref}>
      <Box pos="relative">
        <canvas
          ref={canvas}
          style={{
            width: '100%',
            height,
            cursor: over ? 'pointer' : 'crosshair',
            touchAction: 'pan-y',
            display: 'block',
          }}
          role="img"
          tabIndex={0}
          aria-label={`Slots by time: ${picture.rows.length} slots, ${experimentsOf(picture).length} experiments, from ${moment(shown.from)} to ${moment(shown.until)}. Keys: plus, minus, arrows, escape.`}
          onKeyDown={press}
          onPointerDown={(event) => {
            begun.current = event.nativeEvent.offsetX
          }}
          onPointerMove={(event) => {
            if (begun.current !== undefined && Math.abs(event.nativeEvent.offsetX - begun.current) >= DRAG_PX)
              setDrag([begun.current, event.nativeEvent.offsetX])
            setOver(barAt(event))
          }}
          onPointerUp={release}
          onPointerLeave={() => {
            begun.current = undefined
            setDrag(undefined)
            setOver(undefined)
          }}
        />
        {drag !== undefined && (
          <Box
            pos="absolute"
            top={TOP_PX}
            left={Math.min(...drag)}
            w={Math.abs(drag[1] - drag[0])}
            h={height - TOP_PX}
            bg="cyan"
            opacity={0.2}
            style={{ pointerEvents: 'none' }}
          />
        )}
      </Box>
      <Text size="xs" mih={20} c={over ? undefined : 'dimmed'}>
        {over
          ? `Trial ${over.trial} on ${over.agent}/${over.slot} from ${moment(over.from)}, ${duration(secondsBetween(over.from, over.until ?? whole.until))}${over.until === undefined ? ' so far' : ''}`
          : 'Drag to zoom. ╱╱ out of service   ║║ agent gone   ┃ told to save and leave   ┆ changed by a user'}
      </Text>
      <Legend picture={picture} picked={picked} onPick={onPick} />
    </Box>
  )
}

function experimentsOf(picture: Picture): number[] {
  return [...new Set(picture.bars.map((bar) => bar.experiment))].filter((one) => one > 0).sort((a, b) => b - a)
}

function Legend({ picture, picked, onPick }: Pick<Props, 'picture' | 'picked' | 'onPick'>) {
  const found = experimentsOf(picture)
  return (
    <Group gap={4}>
      {found.slice(0, LEGEND_MAX).map((experiment) => (
        <Button
          key={experiment}
          size="compact-xs"
          variant={picked === experiment ? 'filled' : 'subtle'}
          color="gray"
          aria-pressed={picked === experiment}
          leftSection={<span style={{ color: colorOfExperiment(experiment) }}>■</span>}
          onClick={() => onPick(picked === experiment ? undefined : experiment)}
        >
          experiment {experiment}
        </Button>
      ))}
      {found.length > LEGEND_MAX && (
        <Text size="xs" c="dimmed">
          and {found.length - LEGEND_MAX} more
        </Text>
      )}
    </Group>
  )
}
