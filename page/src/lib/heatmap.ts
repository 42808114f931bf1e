/** A grid over two axes with the mean goodness of the trials in each cell. */

export interface Cell {
  column: number
  row: number
  count: number
  /** Mean of the trials' goodness, from 0 to 1. */
  mean: number
}

export interface Dot {
  /** Places on the two axes, from 0 to 1. */
  x: number
  y: number
  good: number | undefined
}

/** Cells that hold a trial with a metric. */
export function heat(dots: readonly Dot[], columns: number, rows: number): Cell[] {
  const cells = new Map<number, Cell>()
  for (const { x, y, good } of dots) {
    if (good === undefined) continue
    const column = Math.min(columns - 1, Math.floor(x * columns))
    const row = Math.min(rows - 1, Math.floor(y * rows))
    const key = row * columns + column
    const cell = cells.get(key) ?? { column, row, count: 0, mean: 0 }
    cell.count += 1
    cell.mean += (good - cell.mean) / cell.count
    cells.set(key, cell)
  }
  return [...cells.values()]
}
