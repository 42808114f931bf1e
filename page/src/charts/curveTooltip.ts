import type uPlot from 'uplot'
import { curveStyle } from '../lib/curveStyles'
import type { Curves } from '../lib/curves'
import { pointsOf, valuesAt } from '../lib/curveValues'
import { shownNumber } from '../lib/numbers'

const SHOWN_MAX = 10
const AWAY_PX = 14

/** Values beside the pointer. Those who cannot use one have them by the legend and by the saved file. */
export function curveTooltip(trials: string[], xLabel: string): uPlot.Plugin {
  const box = document.createElement('div')
  box.className = 'tenuto-curve-values'
  box.setAttribute('aria-hidden', 'true')
  box.style.cssText =
    'position:absolute;pointer-events:none;z-index:10;padding:4px 8px;border-radius:4px;white-space:nowrap;display:none;' +
    'font-size:12px;background:var(--mantine-color-body);color:var(--mantine-color-text);' +
    'border:1px solid var(--mantine-color-default-border)'
  let drawn: Curves = { trials, x: [], y: [] }
  let points: number[][] = []
  return {
    hooks: {
      // The curves with what is drawn of them: smoothed ones, where they are.
      setData: (plot) => {
        const [x, ...y] = plot.data
        drawn = { trials, x: x as number[], y: y as (number | null)[][] }
        points = pointsOf(drawn)
      },
      init: (plot) => plot.over.append(box),
      setCursor: (plot) => {
        const { idx, left = -1, top = -1 } = plot.cursor
        const { shown, more } =
          idx == null || left < 0
            ? { shown: [], more: 0 }
            : valuesAt(drawn, points, idx, plot.posToVal(top, 'y'), SHOWN_MAX)
        box.style.display = shown.length === 0 ? 'none' : 'block'
        if (shown.length === 0 || idx == null) return
        const head = line(`${shownNumber(plot.data[0][idx])} ${xLabel}`)
        const rows = shown.map(({ trial, index, value }) =>
          line(`${trial}  ${shownNumber(value)}`, curveStyle(index).color),
        )
        box.replaceChildren(head, ...rows, ...(more > 0 ? [line(`and ${more} more`)] : []))
        const onRight = left < plot.over.clientWidth / 2
        box.style.left = onRight ? `${left + AWAY_PX}px` : ''
        box.style.right = onRight ? '' : `${plot.over.clientWidth - left + AWAY_PX}px`
        box.style.top = `${Math.max(0, Math.min(top, plot.over.clientHeight - box.offsetHeight))}px`
      },
    },
  }
}

function line(text: string, color?: string): HTMLElement {
  const row = document.createElement('div')
  if (color !== undefined) {
    const mark = document.createElement('span')
    mark.style.cssText = `display:inline-block;width:8px;height:8px;margin-right:6px;background:${color}`
    row.append(mark)
  }
  row.append(text)
  return row
}
