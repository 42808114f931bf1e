import { Button, Group } from '@mantine/core'
import type uPlot from 'uplot'
import { csvOfCurves, fileName } from '../lib/csv'
import { curveStyle } from '../lib/curveStyles'
import type { Curves } from '../lib/curves'
import { saveCsv, saveFile } from '../parts/saveFile'

const NAMED_MAX = 20
/** More curves have no legend, on the page neither. */
const LINE_PX = 18
const FONT_PX = 12
const MARGIN_PX = 8
const SWATCH_PX = 26

interface Props {
  plot: () => uPlot | null
  curves: Curves
  xLabel: string
  yLabel: string
  dark: boolean
}

/** Saves a picture: its points as CSV, or what is drawn as PNG. */
export function SaveCurves({ plot, curves, xLabel, yLabel, dark }: Props) {
  const words = [yLabel, 'by', xLabel]
  const label = words.join(' ')
  return (
    <Group gap={4} justify="flex-end">
      <Button
        size="compact-xs"
        variant="default"
        aria-label={`Save the points of ${label} as CSV`}
        onClick={() => saveCsv(fileName(words, 'csv'), csvOfCurves(curves, xLabel))}
      >
        CSV
      </Button>
      <Button
        size="compact-xs"
        variant="default"
        aria-label={`Save the picture of ${label} as PNG`}
        onClick={() => {
          const drawn = plot()
          if (drawn === null) return
          pictureOf(drawn, curves.trials, dark).toBlob((content) => {
            if (content !== null) saveFile(fileName(words, 'png'), content)
          })
        }}
      >
        PNG
      </Button>
    </Group>
  )
}

/** The plot on the ground of the page, with its legend below. */
function pictureOf(plot: uPlot, trials: readonly string[], dark: boolean): HTMLCanvasElement {
  const source = plot.ctx.canvas
  const ratio = window.devicePixelRatio
  const named = trials.length <= NAMED_MAX ? trials : []
  const picture = document.createElement('canvas')
  const drawing = picture.getContext('2d') as CanvasRenderingContext2D
  const font = `${FONT_PX * ratio}px sans-serif`
  drawing.font = font
  const widest = Math.max(0, ...named.map((id) => drawing.measureText(id).width))
  const column = widest + (SWATCH_PX + 3 * MARGIN_PX) * ratio
  const across = Math.max(1, Math.floor(source.width / column))
  const lines = Math.ceil(named.length / across)
  picture.width = source.width
  picture.height = source.height + (lines * LINE_PX + 2 * MARGIN_PX) * ratio
  drawing.fillStyle = dark ? '#242424' : '#ffffff'
  drawing.fillRect(0, 0, picture.width, picture.height)
  drawing.drawImage(source, 0, 0)
  drawing.font = font // a canvas forgets it with a new size
  drawing.textBaseline = 'middle'
  named.forEach((id, index) => {
    const left = MARGIN_PX * ratio + (index % across) * column
    const middle = source.height + (MARGIN_PX + (Math.floor(index / across) + 0.5) * LINE_PX) * ratio
    const { color, dash } = curveStyle(index)
    drawing.strokeStyle = color
    drawing.lineWidth = 3 * ratio
    drawing.setLineDash(dash.map((length) => length * ratio))
    drawing.beginPath()
    drawing.moveTo(left, middle)
    drawing.lineTo(left + SWATCH_PX * ratio, middle)
    drawing.stroke()
    drawing.fillStyle = dark ? '#c9c9c9' : '#495057'
    drawing.fillText(id, left + (SWATCH_PX + MARGIN_PX) * ratio, middle)
  })
  return picture
}
