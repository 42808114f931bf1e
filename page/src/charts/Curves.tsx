import 'uplot/dist/uPlot.min.css'
import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import { curveStyle } from '../lib/curveStyles'
import type { Curves as Data } from '../lib/curves'
import { smoothed } from '../lib/curves'
import { shownNumber } from '../lib/numbers'
import { type Zoom, zoomBy } from '../lib/zoom'
import { useDark } from '../parts/useDark'
import { curveTooltip } from './curveTooltip'
import { SaveCurves } from './SaveCurves'

const HEIGHT_PX = 360
const NEAR_PX = 30
const RAW_ALPHA = 0.3
const MARKED_MAX = 20
/** With more curves no others fade and none has marks: to draw all again for each move of the pointer takes seconds. */

interface Props {
  curves: Data
  xLabel: string
  yLabel: string
  logY: boolean
  smoothing: number
  /** Id of the trial that is drawn thick; empty for none. */
  focused: string
  onFocus: (trial: string) => void
  /** The part that is shown; undefined: all of it. A drag picks one, a double click shows all again. */
  zoom: Zoom | undefined
  onZoom: (zoom: Zoom | undefined) => void
  /** What the picture shows, for those who do not see it. */
  label?: string
  heightPx?: number
}

/** Learning curves of many trials. New points are set into the same plot, so that the pointer stays. */
export function Curves(props: Props) {
  const { curves, xLabel, yLabel, logY, smoothing, focused, zoom, heightPx = HEIGHT_PX } = props
  const element = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const now = useRef(props)
  now.current = props
  const dark = useDark()
  const trials = curves.trials.join(' ')

  useEffect(() => {
    const parent = element.current
    if (parent === null) return
    const made = new uPlot(
      {
        ...options(curves.trials, parent.clientWidth, dark, xLabel, yLabel, logY),
        height: heightPx,
        plugins: [curveTooltip(curves.trials, xLabel)],
        hooks: {
          setSelect: [(drawn) => now.current.onZoom(selected(drawn, now.current.zoom))],
          drawAxes: [(drawn) => drawRaw(drawn, now.current)],
        },
      },
      [[]],
      parent,
    )
    plot.current = made
    const resized = new ResizeObserver(() => made.setSize({ width: parent.clientWidth, height: heightPx }))
    resized.observe(parent)
    const clicked = () => {
      const series = made.cursor.idx == null ? 0 : nearest(made)
      now.current.onFocus(series > 0 ? (curves.trials[series - 1] ?? '') : '')
    }
    made.over.addEventListener('click', clicked)
    made.over.addEventListener('dblclick', () => now.current.onZoom(undefined))
    return () => {
      resized.disconnect()
      made.destroy()
      plot.current = null
    }
  }, [trials, dark, xLabel, yLabel, logY])

  useEffect(() => {
    const made = plot.current
    if (made === null) return
    made.setData([curves.x, ...curves.y.map((row) => smoothed(row, smoothing))] as uPlot.AlignedData)
    show(made, now.current)
  }, [curves, smoothing, trials, dark, xLabel, yLabel, logY])

  const shown = zoom?.join(' ')
  const drawn = useRef(shown)
  useEffect(() => {
    if (drawn.current === shown) return
    drawn.current = shown
    plot.current?.setData(plot.current.data) // all of it, so that an axis that is not zoomed fits again
    if (plot.current !== null) show(plot.current, now.current)
  }, [shown])

  useEffect(() => {
    const made = plot.current
    if (made === null) return
    made.series.forEach((series, index) => {
      if (index > 0) series.width = curves.trials[index - 1] === focused ? 3 : widthOf(curves.trials.length)
    })
    made.redraw(false)
  }, [focused, trials, dark, xLabel, yLabel, logY])

  return (
    <div>
      <div ref={element} role="img" aria-label={props.label ?? `Curves of ${yLabel} by ${xLabel}, one per trial`} />
      <SaveCurves plot={() => plot.current} curves={curves} xLabel={xLabel} yLabel={yLabel} dark={dark} />
    </div>
  )
}

/** What was measured, faintly below the smoothed curves. */
function drawRaw(plot: uPlot, { curves, smoothing }: Props): void {
  if (smoothing <= 0 || curves.trials.length > MARKED_MAX) return
  const { ctx, bbox } = plot
  ctx.save()
  ctx.beginPath()
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height)
  ctx.clip()
  ctx.globalAlpha = RAW_ALPHA
  ctx.lineWidth = window.devicePixelRatio
  curves.y.forEach((row, index) => {
    ctx.strokeStyle = curveStyle(index).color
    ctx.beginPath()
    row.forEach((value, at) => {
      const x = curves.x[at]
      if (value !== null && x !== undefined) ctx.lineTo(plot.valToPos(x, 'x', true), plot.valToPos(value, 'y', true))
    })
    ctx.stroke()
  })
  ctx.restore()
}

function show(plot: uPlot, { zoom, logY }: Props): void {
  const [x0, x1, y0, y1] = zoom ?? []
  plot.batch(() => {
    if (x0 != null && x1 != null) plot.setScale('x', { min: x0, max: x1 })
    if (y0 != null && y1 != null && (y0 > 0 || !logY)) plot.setScale('y', { min: y0, max: y1 })
  })
}

function selected(plot: uPlot, before: Zoom | undefined): Zoom | undefined {
  const { clientWidth: width, clientHeight: height } = plot.over
  const zoom = zoomBy(plot.select, { width, height }, (pixel, axis) => plot.posToVal(pixel, axis), before)
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
  return zoom
}

/** Of a line, in CSS pixels. Many lines are as thin as the screen can draw: such a line costs a tenth of a thicker one. */
function widthOf(trials: number): number {
  return trials <= MARKED_MAX ? 1.25 : Math.min(1.25, 1 / window.devicePixelRatio)
}

function options(trials: string[], width: number, dark: boolean, x: string, y: string, logY: boolean): uPlot.Options {
  const ink = dark ? '#c9c9c9' : '#495057'
  const few = trials.length <= MARKED_MAX
  const grid = { stroke: dark ? '#3b3b3b' : '#e9ecef', width: 1 }
  return {
    width,
    height: HEIGHT_PX,
    cursor: {
      ...(few ? { focus: { prox: NEAR_PX } } : { points: { show: false } }),
      drag: { x: true, y: true, uni: 20, setScale: false },
    },
    focus: { alpha: few ? 0.25 : 1 },
    legend: { show: few, live: true },
    scales: { x: { time: false }, y: logY ? { distr: 3 } : {} },
    axes: [
      { label: x, stroke: ink, grid },
      { label: y, stroke: ink, grid, size: 64, values: (_, values) => values.map((value) => shownNumber(value)) },
    ],
    series: [
      { label: x },
      ...trials.map((id, index) => ({
        label: id,
        stroke: curveStyle(index).color,
        dash: [...curveStyle(index).dash],
        width: widthOf(trials.length),
        spanGaps: true,
        points: { show: few, size: 4 },
        value: (_: uPlot, value: number | null) => shownNumber(value),
      })),
    ],
  }
}

/** Index of the series whose point is nearest to the pointer; 0 where none is near. */
function nearest(plot: uPlot): number {
  const [left, top] = [plot.cursor.left ?? -1, plot.cursor.top ?? -1]
  let best = 0
  let distance = NEAR_PX
  plot.series.forEach((_, index) => {
    if (index === 0) return
    const values = plot.data[index] ?? []
    plot.data[0].forEach((x, at) => {
      const value = values[at]
      if (value == null) return
      const away = Math.hypot(plot.valToPos(x, 'x') - left, plot.valToPos(value, 'y') - top)
      if (away < distance) {
        best = index
        distance = away
      }
    })
  })
  return best
}
