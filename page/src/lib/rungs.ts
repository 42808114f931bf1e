/** The rungs of a search, from the reasons of its recorded decisions: who was compared where, with which value, and what became of it. */

import { drawable } from './numbers'
import type { LogEvent } from './outdatedQueries'

export type Fate = 'waits' | 'goes on' | 'stopped' | 'completed'

export interface Dot {
  trial: string
  /** Rung that it stands at, see `Rung.key`. */
  at: string
  /** Undefined: it failed, or what it reported is no number; it counts as worst. */
  metric: number | undefined
  fate: Fate
  /** The gateway's sentence about the newest decision here. */
  sentence: string
  position: number
}

export interface Rung {
  /** Unlike that of any other rung of the search. */
  key: string
  rung: number
  /** Undefined: the search has one bracket, or a class of its own and no brackets. */
  bracket: number | undefined
  length: number
  unit: string
  /** The value of the last trial that may go on, as of the newest comparison; undefined while too few are there. */
  cutOff: number | undefined
  dots: Dot[]
}

interface Numbers {
  rung?: unknown
  bracket?: unknown
  length?: unknown
  unit?: unknown
  metric?: unknown
  cut_off?: unknown
  waited?: unknown
}

type Found = Rung & { byTrial: Map<string, Dot> }

const FATES: Record<string, Fate> = { TrialPaused: 'waits', TrialExtended: 'goes on', TrialStopped: 'stopped' }
export const DECISIONS = Object.keys(FATES)

/** Rungs by bracket and length; none for a search of which nothing was decided. `upto`: only what was decided by then. */
export function rungsOf(events: readonly LogEvent[], upto = Number.POSITIVE_INFINITY): Rung[] {
  const rungs = new Map<string, Found>()
  const newest = new Map<string, Dot>()
  for (const event of events) {
    const fate = FATES[event.type]
    if (fate === undefined || event.position > upto) continue
    const reason = (event.data.reason ?? {}) as { rule?: string; numbers?: Numbers }
    const numbers = reason.numbers ?? {}
    const trial = String(event.data.trial_id)
    const known = newest.get(trial)
    const dot: Dot = {
      trial,
      at: known?.at ?? '',
      metric: known?.metric,
      fate: event.data.outcome === 'completed' ? 'completed' : fate,
      sentence: event.sentence ?? '',
      position: event.position,
    }
    if (compares(reason.rule, numbers)) {
      const found = rungOf(rungs, numbers)
      if (fate !== 'stopped') found.cutOff = drawable(numbers.cut_off) ?? found.cutOff
      dot.at = found.key
      dot.metric = drawable(numbers.metric)
    } else if (known?.fate !== 'waits') continue // It trained: nothing was decided at a rung.
    newest.set(trial, dot)
    rungs.get(dot.at)?.byTrial.set(trial, dot)
  }
  return [...rungs.values()]
    .sort((a, b) => (a.bracket ?? 0) - (b.bracket ?? 0) || a.length - b.length || a.rung - b.rung)
    .map(({ byTrial, ...rung }) => ({ ...rung, dots: [...byTrial.values()] }))
}

/** True where a trial stands at a rung: with what it reported there, or last because it has nothing to be compared by. */
function compares(rule: string | undefined, numbers: Numbers): boolean {
  if (numbers.length === undefined) return false
  if (numbers.metric !== undefined) return drawable(numbers.metric) !== undefined || numbers.metric === null
  return rule === 'failed' && numbers.rung !== undefined && numbers.waited !== true
}

/** A search that a class of the user's own decides has no rungs: there, trials stand at the lengths that they were told to reach. */
function rungOf(rungs: Map<string, Found>, numbers: Numbers): Found {
  const length = Number(numbers.length)
  const rung = typeof numbers.rung === 'number' ? numbers.rung : length
  const bracket = typeof numbers.bracket === 'number' ? numbers.bracket : undefined
  const key = `${bracket ?? ''}/${rung}`
  let found = rungs.get(key)
  if (found === undefined) {
    const unit = String(numbers.unit ?? 'batches')
    found = { key, rung, bracket, length, unit, cutOff: undefined, dots: [], byTrial: new Map() }
    rungs.set(key, found)
  }
  return found
}

/** Pairs of dots of one trial at neighbouring rungs: its promotions. */
export function promotions(rungs: readonly Rung[]): [Dot, Dot][] {
  const pairs: [Dot, Dot][] = []
  const before = new Map<string, Dot>()
  for (const rung of rungs)
    for (const dot of rung.dots) {
      const from = before.get(dot.trial)
      if (from !== undefined) pairs.push([from, dot])
      before.set(dot.trial, dot)
    }
  return pairs
}
