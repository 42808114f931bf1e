import { useCallback } from 'react'
import { HEIGHT_PX, nearestDot, type Places } from '../lib/rungPlaces'
import type { Dot, Fate, Rung } from '../lib/rungs'
import { colorIn, type SchemeColor } from '../lib/schemes'
import { useDark } from '../parts/useDark'
import { useCanvas } from './useCanvas'

const NEAR_PX = 10
const RADIUS_PX = 3

interface Props {
  rungs: Rung[]
  lines: [Dot, Dot][]
  places: Places
  colors: Record<Fate, SchemeColor>
  picked: string
  onPick: (trial: string) => void
  label: string
}

/** Thousands of trials at their rungs, painted; a click picks the nearest. */
export function RungDots({ rungs, lines, places, colors, picked, onPick, label }: Props) {
  const scheme = useDark() ? 'dark' : 'light'
  const draw = useCallback(
    (to: CanvasRenderingContext2D, wide: number) => {
      to.clearRect(0, 0, wide, HEIGHT_PX)
      const stroke = (pairs: [Dot, Dot][], alpha: number, thick: number) => {
        to.globalAlpha = alpha
        to.lineWidth = thick
        to.strokeStyle = colorIn(scheme, colors['goes on'])
        to.beginPath()
        for (const [from, next] of pairs) {
          to.moveTo(places.x(from), places.y(from.metric))
          to.lineTo(places.x(next), places.y(next.metric))
        }
        to.stroke()
      }
      stroke(lines, picked === '' ? 0.3 : 0.08, 1 / window.devicePixelRatio)
      const dots = rungs.flatMap((rung) => rung.dots)
      to.globalAlpha = picked === '' ? 0.8 : 0.3
      for (const fate of Object.keys(colors) as Fate[]) {
        to.fillStyle = colorIn(scheme, colors[fate])
        to.beginPath()
        for (const dot of dots) {
          if (dot.fate !== fate) continue
          const [x, y] = [places.x(dot), places.y(dot.metric)]
          to.rect(x - RADIUS_PX / 2, y - RADIUS_PX / 2, RADIUS_PX, RADIUS_PX)
        }
        to.fill()
      }
      if (picked === '') return
      stroke(
        lines.filter(([from]) => from.trial === picked),
        1,
        2.5,
      )
      for (const dot of dots.filter((one) => one.trial === picked)) {
        to.fillStyle = colorIn(scheme, colors[dot.fate])
        to.beginPath()
        to.arc(places.x(dot), places.y(dot.metric), 2 * RADIUS_PX, 0, 2 * Math.PI)
        to.fill()
      }
    },
    [rungs, lines, places, colors, scheme, picked],
  )
  const { ref, canvas } = useCanvas(HEIGHT_PX, draw)
  return (
    <div ref={ref} style={{ width: places.width, height: HEIGHT_PX }}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={label}
        style={{ width: places.width, height: HEIGHT_PX, display: 'block', cursor: 'pointer' }}
        onClick={(event) => {
          const box = event.currentTarget.getBoundingClientRect()
          const dot = nearestDot(rungs, places, event.clientX - box.left, event.clientY - box.top, NEAR_PX)
          if (dot !== undefined) onPick(dot.trial)
        }}
      />
    </div>
  )
}
