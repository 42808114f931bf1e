import { Box } from '@mantine/core'
import { type MouseEvent, useCallback, useState } from 'react'
import { type Axis, ticksOf } from '../lib/axes'
import { scaleColor } from '../lib/colors'
import { type Dot, heat } from '../lib/heatmap'
import { useDark } from '../parts/useDark'
import { useCanvas } from './useCanvas'

const HEIGHT_PX = 420
const LEFT_PX = 84
const RIGHT_PX = 24
const TOP_PX = 16
const BOTTOM_PX = 48
const NEAR_PX = 12
const CELLS = 12
const MARK_PX = 4.5
/** Half of a dot, so that the outermost stand whole in the picture. */
const INSET_PX = 10

export interface Trial extends Dot {
  id: string
  /** What is told of it where the pointer is. */
  text: string
  /** Drawn with a ring, such as those of a Pareto front. */
  ringed?: boolean
}

interface Props {
  x: Axis
  y: Axis
  dots: Trial[]
  /** Cells with the mean metric instead of dots. */
  cells: boolean
  picked: string
  onPick: (trial: string) => void
  label: string
}

/** Trials over two axes, their colour by how good they are; or the mean of them in each cell of a grid. */
export function Dots({ x, y, dots, cells, picked, onPick, label }: Props) {
  const dark = useDark()
  const [over, setOver] = useState<Trial>()
  const at = useCallback((dot: Pick<Dot, 'x' | 'y'>, width: number): [number, number] => {
    const wide = width - LEFT_PX - RIGHT_PX - 2 * INSET_PX
    const high = HEIGHT_PX - TOP_PX - BOTTOM_PX - 2 * INSET_PX
    return [LEFT_PX + INSET_PX + dot.x * wide, TOP_PX + INSET_PX + (1 - dot.y) * high]
  }, [])
  const draw = useCallback(
    (to: CanvasRenderingContext2D, width: number) => {
      to.clearRect(0, 0, width, HEIGHT_PX)
      if (cells) {
        for (const cell of heat(dots, CELLS, CELLS)) {
          const [left, bottom] = at({ x: cell.column / CELLS, y: cell.row / CELLS }, width)
          const [right, top] = at({ x: (cell.column + 1) / CELLS, y: (cell.row + 1) / CELLS }, width)
          to.fillStyle = scaleColor(cell.mean, dark)
          to.fillRect(left + 1, top + 1, right - left - 2, bottom - top - 2)
        }
        return
      }
      for (const dot of dots) {
        const [px, py] = at(dot, width)
        to.beginPath()
        to.arc(px, py, dot.id === picked ? MARK_PX * 1.7 : MARK_PX, 0, 2 * Math.PI)
        to.fillStyle = dot.good === undefined ? (dark ? '#868e96' : '#adb5bd') : scaleColor(dot.good, dark)
        to.globalAlpha = dots.length > 2000 ? 0.6 : 0.9
        to.fill()
        to.globalAlpha = 1
        if (dot.id === picked || dot.ringed) {
          to.lineWidth = 2
          to.strokeStyle = '#D55E00'
          to.stroke()
        }
      }
    },
    [dots, cells, picked, dark, at],
  )
  const { ref, canvas, width } = useCanvas(HEIGHT_PX, draw)
  const nearest = (event: MouseEvent<HTMLCanvasElement>): Trial | undefined => {
    const box = event.currentTarget.getBoundingClientRect()
    const [left, top] = [event.clientX - box.left, event.clientY - box.top]
    let [best, distance] = [undefined as Trial | undefined, NEAR_PX]
    for (const dot of dots) {
      const [px, py] = at(dot, width)
      const away = Math.hypot(px - left, py - top)
      if (away < distance) [best, distance] = [dot, away]
    }
    return best
  }
  const [tipX, tipY] = over === undefined ? [0, 0] : at(over, width)
  return (
    <Box ref={ref} pos="relative" h={HEIGHT_PX}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={label}
        style={{ width, height: HEIGHT_PX, display: 'block', cursor: over ? 'pointer' : 'default' }}
        onMouseMove={(event) => setOver(cells ? undefined : nearest(event))}
        onMouseLeave={() => setOver(undefined)}
        onClick={(event) => onPick(nearest(event)?.id ?? '')}
      />
      <svg
        width={width}
        height={HEIGHT_PX}
        aria-hidden="true"
        style={{ position: 'absolute', inset: 0, pointerEvents: 'none' }}
      >
        <g stroke="currentColor" strokeOpacity={0.4}>
          <line x1={LEFT_PX} x2={width - RIGHT_PX} y1={HEIGHT_PX - BOTTOM_PX} y2={HEIGHT_PX - BOTTOM_PX} />
          <line x1={LEFT_PX} x2={LEFT_PX} y1={TOP_PX} y2={HEIGHT_PX - BOTTOM_PX} />
        </g>
        <g fontSize={11} fill="currentColor">
          {ticksOf(x).map(([place, name]) => (
            <text key={place} x={at({ x: place, y: 0 }, width)[0]} y={HEIGHT_PX - BOTTOM_PX + 16} textAnchor="middle">
              {short(name)}
            </text>
          ))}
          {ticksOf(y).map(([place, name]) => (
            <text key={place} x={LEFT_PX - 6} y={at({ x: 0, y: place }, width)[1] + 4} textAnchor="end">
              {short(name)}
            </text>
          ))}
          <text x={(LEFT_PX + width - RIGHT_PX) / 2} y={HEIGHT_PX - 8} textAnchor="middle" fontWeight={600}>
            {x.name}
          </text>
          <text
            transform={`translate(14 ${(TOP_PX + HEIGHT_PX - BOTTOM_PX) / 2}) rotate(-90)`}
            textAnchor="middle"
            fontWeight={600}
          >
            {y.name}
          </text>
        </g>
      </svg>
      {over !== undefined && (
        <Box
          pos="absolute"
          left={Math.min(tipX + 12, Math.max(0, width - 220))}
          top={Math.max(0, tipY - 12)}
          maw={220}
          p={6}
          fz="xs"
          bg="var(--mantine-color-body)"
          bd="1px solid var(--mantine-color-default-border)"
          style={{ pointerEvents: 'none', whiteSpace: 'pre-wrap', borderRadius: 4 }}
        >
          {over.text}
        </Box>
      )}
    </Box>
  )
}

const short = (text: string) => (text.length > 12 ? `${text.slice(0, 11)}…` : text)
