/** Curves of training metrics as the gateway thins them for a picture, and how they are followed: pure. */

import { byNumber, type Curves } from './curves'
import { isNotFinite, toldNotFinite } from './notFinite'
import { drawable } from './numbers'

export interface Piece {
  trial_id: string
  metric: string
  /** From these batches on, the points take the place of earlier ones. */
  since: number
  batches: number[]
  /** NaN and infinities are strings. */
  values: unknown[]
  time_us: number[] | null
}

export interface Answer {
  cursor: string
  /** False: what is missing has not changed since the answer before. */
  whole: boolean
  metrics: string[]
  curves: Piece[]
}

export interface Pictures {
  cursor: string
  metrics: string[]
  /** By trial and metric. */
  pieces: ReadonlyMap<string, Piece>
}

/** What is known after an answer; the same object where that is what was known before, so that nothing is drawn again. */
export function followed(before: Pictures | undefined, answer: Answer): Pictures {
  const keep = before !== undefined && !answer.whole
  if (keep && answer.curves.length === 0 && answer.cursor === before.cursor) return before
  const pieces = new Map(keep ? before.pieces : [])
  for (const piece of answer.curves) {
    const key = `${piece.trial_id} ${piece.metric}`
    const old = pieces.get(key)
    pieces.set(key, old === undefined ? piece : joined(old, piece))
  }
  return { cursor: answer.cursor, metrics: keep ? before.metrics : answer.metrics, pieces }
}

function joined(old: Piece, piece: Piece): Piece {
  const at = old.batches.findIndex((batches) => batches >= piece.since)
  const end = at < 0 ? old.batches.length : at
  return {
    ...piece,
    batches: [...old.batches.slice(0, end), ...piece.batches],
    values: [...old.values.slice(0, end), ...piece.values],
    time_us: piece.time_us && old.time_us && [...old.time_us.slice(0, end), ...piece.time_us],
  }
}

/** One metric of all trials with one shared, sorted x. Time counts in seconds from each trial's first point. `reached`: only up to
 * so many batches of each trial; none of a trial that is not in it. */
export function drawnCurves(
  pictures: Pictures,
  metric: string,
  axis: 'batches' | 'time',
  reached?: ReadonlyMap<string, number>,
): Curves {
  const pieces = [...pictures.pieces.values()]
    .filter((piece) => piece.metric === metric)
    .map((piece) => (reached === undefined ? piece : cut(piece, reached.get(piece.trial_id) ?? -1)))
    .filter((piece) => reached === undefined || piece.batches.length > 0)
  pieces.sort((a, b) => byNumber(a.trial_id, b.trial_id))
  const places = pieces.map((piece) => {
    const times = piece.time_us
    if (axis === 'batches' || times === null) return piece.batches
    return times.map((time) => (time - (times[0] ?? 0)) / 1e6)
  })
  const x = [...new Set(places.flat())].sort((a, b) => a - b)
  const indexes = new Map(x.map((at, index) => [at, index]))
  const y = pieces.map((piece, number) => {
    const row = new Array<number | null>(x.length).fill(null)
    places[number]?.forEach((at, index) => {
      const value = drawable(piece.values[index])
      if (value !== undefined) row[indexes.get(at) ?? 0] = value
    })
    return row
  })
  return { trials: pieces.map((piece) => piece.trial_id), x, y }
}

/** How many of an experiment's trials are in a picture: one picture of training metrics takes the first thousand that have it. */
export function drawnOf(drawn: number, all: number): string {
  if (drawn >= all) return `${drawn.toLocaleString('en')} trials`
  return `${drawn.toLocaleString('en')} of ${all.toLocaleString('en')} trials are drawn`
}

/** One sentence on the values of a training metric that are in no picture; empty where all of them are. */
export function toldNotDrawn(pictures: Pictures | undefined, metric: string): string {
  const points = [...(pictures?.pieces.values() ?? [])]
    .filter((piece) => piece.metric === metric)
    .flatMap(({ trial_id, batches, values }) =>
      values.flatMap((value, index) =>
        isNotFinite(value) ? [{ trial_id, batches: batches[index] ?? 0, metrics: { [metric]: value } }] : [],
      ),
    )
  return toldNotFinite(points, metric)
}

/** Only what was measured up to so many batches. */
function cut(piece: Piece, upto: number): Piece {
  const beyond = piece.batches.findIndex((batches) => batches > upto)
  if (beyond < 0) return piece
  const { batches, values, time_us } = piece
  return {
    ...piece,
    batches: batches.slice(0, beyond),
    values: values.slice(0, beyond),
    time_us: time_us?.slice(0, beyond) ?? null,
  }
}

const COLUMNS = 1_000
const COLUMNS_MIN = 125
const COLUMNS_OF_ALL = 200_000

/** Columns of pixels that each of so many curves is thinned to: where a thousand lie over each other, nobody sees a tenth of them.
 * In few steps, as with another number all of it is asked for anew. */
export function columnsFor(curves: number): number {
  let columns = COLUMNS
  while (columns > COLUMNS_MIN && columns * curves > COLUMNS_OF_ALL) columns = Math.floor(columns / 2)
  return columns
}
