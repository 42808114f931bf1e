/** The part of a picture of curves that is shown, as the URL keeps it: pure. */

/** From and until of the horizontal axis, then of the vertical one; both null: all of it. */
export type Zoom = readonly [number | null, number | null, number | null, number | null]

interface Box {
  left: number
  top: number
  width: number
  height: number
}

const DIGITS = 6
const PIXELS_MIN = 3
/** A hand that shakes while it clicks zooms nothing. */

/** Of a URL's search; undefined for what is none. */
export function zoomOf(raw: unknown): Zoom | undefined {
  if (!Array.isArray(raw) || raw.length !== 4) return undefined
  const [x0, x1, y0, y1] = raw as unknown[]
  const [x, y] = [pair(x0, x1), pair(y0, y1)]
  if (x === undefined || y === undefined || (x[0] === null && y[0] === null)) return undefined
  return [...x, ...y]
}

function pair(from: unknown, until: unknown): [number, number] | [null, null] | undefined {
  if (from === null && until === null) return [null, null]
  const known = typeof from === 'number' && typeof until === 'number' && Number.isFinite(until - from)
  return known && from < until ? [from, until] : undefined
}

/** What a dragged box selects. One over the whole width or height leaves that axis: the vertical one fits what is then seen, and
 * the horizontal one stays as it is. */
export function zoomBy(
  box: Box,
  plot: { width: number; height: number },
  valueAt: (pixel: number, axis: 'x' | 'y') => number,
  before: Zoom | undefined,
): Zoom | undefined {
  const isX = box.width < plot.width - 1
  const isY = box.height < plot.height - 1
  if ((isX && box.width < PIXELS_MIN) || (isY && box.height < PIXELS_MIN)) return before
  const x = isX ? [valueAt(box.left, 'x'), valueAt(box.left + box.width, 'x')].map(short) : before?.slice(0, 2)
  const y = isY ? [valueAt(box.top + box.height, 'y'), valueAt(box.top, 'y')].map(short) : undefined
  return zoomOf([...(x ?? [null, null]), ...(y ?? [null, null])]) ?? before
}

const short = (value: number) => Number(value.toPrecision(DIGITS))
