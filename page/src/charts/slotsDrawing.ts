/** Draws bars of slots on a canvas: a row a slot, a colour an experiment, hatched what was out of service. */

import { type Bar, type Outage, type Picture, type Range, rowKey } from '../lib/slots'
import { CURVE_COLORS } from '../theme'

export const TOP_PX = 44
const TICKS = 5
const WORD_PX = 46
const LABEL_LEVELS = 3

export interface Layout {
  range: Range
  left: number
  width: number
  row: number
  index: Map<string, number>
  dark: boolean
  picked: number | undefined
}

export const colorOfExperiment = (experiment: number) => CURVE_COLORS[experiment % CURVE_COLORS.length] ?? '#7F7F7F'

export function xOf(time: number, { range, left, width }: Layout): number {
  return left + ((time - range.from) / (range.until - range.from)) * (width - left)
}

export function drawSlots(
  to: CanvasRenderingContext2D,
  picture: Picture,
  layout: Layout,
  shownTime: (us: number) => string,
) {
  const { left, width, row, index } = layout
  const height = TOP_PX + index.size * row
  const ink = layout.dark ? '#c9c9c9' : '#333333'
  to.clearRect(0, 0, width, height)
  to.font = '11px system-ui, sans-serif'
  drawAxis(to, layout, height, ink, shownTime)
  to.save()
  to.beginPath()
  to.rect(left, 0, width - left, height)
  to.clip()
  for (const bar of picture.bars) drawBar(to, bar, layout)
  for (const outage of picture.outages) drawOutage(to, outage, layout, ink)
  drawMarks(to, picture, layout, height, ink)
  to.restore()
  to.fillStyle = ink
  to.textAlign = 'left'
  const every = Math.ceil(14 / row)
  for (const [key, at] of index) {
    if (at % every === 0) to.fillText(key.replace('\n', '/'), 0, TOP_PX + (at + 0.5) * row + 4, left - 6)
  }
}

function drawAxis(
  to: CanvasRenderingContext2D,
  layout: Layout,
  height: number,
  ink: string,
  shownTime: (us: number) => string,
) {
  const { range, left, width } = layout
  const ticks = width - left < 400 ? 2 : TICKS
  for (let tick = 0; tick <= ticks; tick += 1) {
    const time = range.from + (tick / ticks) * (range.until - range.from)
    const x = xOf(time, layout)
    to.strokeStyle = ink
    to.globalAlpha = 0.18
    line(to, x, 16, x, height)
    to.globalAlpha = 1
    to.fillStyle = ink
    to.textAlign = tick === 0 ? 'left' : tick === ticks ? 'right' : 'center'
    to.fillText(shownTime(time), x, 12)
  }
}

function place(item: Bar | Outage, layout: Layout): [number, number, number] | undefined {
  const at = layout.index.get(rowKey(item.agent, item.slot))
  if (at === undefined) return undefined
  const from = Math.max(layout.left, xOf(item.from, layout))
  const until = Math.min(layout.width, xOf(item.until ?? layout.range.until, layout))
  return until < layout.left || from > layout.width
    ? undefined
    : [from, Math.max(1, until - from), TOP_PX + at * layout.row]
}

function drawBar(to: CanvasRenderingContext2D, bar: Bar, layout: Layout) {
  const found = place(bar, layout)
  if (found === undefined) return
  const [x, width, y] = found
  to.globalAlpha = layout.picked === undefined || layout.picked === bar.experiment ? 1 : 0.2
  to.fillStyle = colorOfExperiment(bar.experiment)
  to.fillRect(x, y + 1, Math.max(1, width - 0.5), layout.row - 2)
  if (width > WORD_PX && layout.row >= 14) {
    to.fillStyle = inkOn(to.fillStyle)
    to.textAlign = 'left'
    to.fillText(bar.trial, x + 4, y + layout.row / 2 + 4, width - 6)
  }
  to.globalAlpha = 1
}

/** Black or white, whichever stands out more. */
function inkOn(color: string): string {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16))
  return 0.299 * red + 0.587 * green + 0.114 * blue > 120 ? '#000000' : '#ffffff'
}

function drawOutage(to: CanvasRenderingContext2D, outage: Outage, layout: Layout, ink: string) {
  const found = place(outage, layout)
  if (found === undefined) return
  const [x, width, y] = found
  to.save()
  to.beginPath()
  to.rect(x, y + 1, width, layout.row - 2)
  to.clip()
  to.strokeStyle = ink
  to.globalAlpha = 0.55
  const slope = outage.why === 'closed' ? layout.row : 0
  to.beginPath()
  for (let at = x - (x % 7) - layout.row; at < x + width; at += 7) {
    to.moveTo(at, y + layout.row)
    to.lineTo(at + slope, y)
  }
  to.stroke()
  to.restore()
}

function drawMarks(to: CanvasRenderingContext2D, picture: Picture, layout: Layout, height: number, ink: string) {
  const where = new Map<string, number[]>()
  for (const bar of picture.bars) {
    const at = layout.index.get(rowKey(bar.agent, bar.slot))
    if (at !== undefined) where.set(bar.allocation, [...(where.get(bar.allocation) ?? []), at])
  }
  to.strokeStyle = layout.dark ? '#ffffff' : '#000000'
  to.lineWidth = 2
  for (const { time, allocation } of picture.told)
    for (const at of where.get(allocation) ?? []) {
      const x = xOf(time, layout)
      line(to, x, TOP_PX + at * layout.row + 1, x, TOP_PX + (at + 1) * layout.row - 1)
    }
  to.lineWidth = 1
  to.strokeStyle = ink
  to.fillStyle = ink
  to.textAlign = 'left'
  to.setLineDash([4, 3])
  picture.changed.forEach(({ time, text }, number) => {
    const x = xOf(time, layout)
    line(to, x, 18, x, height)
    to.fillText(text, x + 3, 24 + 8 * (number % LABEL_LEVELS))
  })
  to.setLineDash([])
}

function line(to: CanvasRenderingContext2D, x: number, y: number, toX: number, toY: number) {
  to.beginPath()
  to.moveTo(x, y)
  to.lineTo(toX, toY)
  to.stroke()
}
