/** A scale of colours from bad to good that colour-blind people read, too: cividis (Nunez et al., PLoS ONE 13(7), 2018), in nine steps. */

const CIVIDIS: readonly [number, number, number][] = [
  [0, 34, 78],
  [18, 53, 112],
  [59, 73, 108],
  [87, 93, 109],
  [112, 113, 115],
  [138, 134, 120],
  [165, 156, 116],
  [195, 179, 105],
  [254, 232, 56],
]
const DARKEST_SHOWN = 0.3
/** On a dark ground the darkest part is left out. */

/** `part` from 0 to 1; on a light ground the scale is turned round, so that what is good stands out. */
export function scaleColor(part: number, dark: boolean): string {
  const clipped = Math.min(1, Math.max(0, part))
  const at = (dark ? DARKEST_SHOWN + clipped * (1 - DARKEST_SHOWN) : (1 - clipped) * 0.9) * (CIVIDIS.length - 1)
  const low = CIVIDIS[Math.floor(at)] ?? CIVIDIS[0]
  const high = CIVIDIS[Math.ceil(at)] ?? low
  const rest = at - Math.floor(at)
  const mixed = (low ?? [0, 0, 0]).map((value, index) => Math.round(value + ((high?.[index] ?? value) - value) * rest))
  return `rgb(${mixed.join(', ')})`
}
