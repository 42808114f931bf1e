const INSET_PX = 2

/** The path of a curve that fills a small picture; one point is a level line. */
export function sparkPath(x: readonly number[], y: readonly number[], width: number, height: number): string {
  const points = x.flatMap((at, index) => {
    const value = y[index]
    return value === undefined || !Number.isFinite(value) ? [] : [[at, value] as const]
  })
  if (points.length === 0) return ''
  const [xs, ys] = [points.map(([at]) => at), points.map(([, value]) => value)]
  const scale = (value: number, values: number[], from: number, until: number) => {
    const [low, high] = [Math.min(...values), Math.max(...values)]
    return high === low ? (from + until) / 2 : from + ((value - low) / (high - low)) * (until - from)
  }
  if (points.length === 1) return `M${INSET_PX} ${height / 2}H${width - INSET_PX}`
  const placed = points.map(([at, value]) => {
    const px = scale(at, xs, INSET_PX, width - INSET_PX)
    const py = scale(value, ys, height - INSET_PX, INSET_PX)
    return `${Number(px.toFixed(1))} ${Number(py.toFixed(1))}`
  })
  return `M${placed.join('L')}`
}
