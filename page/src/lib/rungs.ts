/** The rungs of a search, as the gateway tells them, in the form in which they are drawn. */

import type { RungsView, RungTrialView } from '../api/openapi'

export type Fate = RungTrialView['fate']

export interface Dot {
  trial: string
  /** Rung that it stands at, see `Rung.key`. */
  at: string
  metric: number | undefined
  fate: Fate
  sentence: string
  position: number
}

export interface Rung {
  key: string
  rung: number
  bracket: number | undefined
  length: number
  unit: string
  /** Value of the last trial that may go on. */
  cutOff: number | undefined
  dots: Dot[]
}

export const rungsOf = ({ rungs }: RungsView): Rung[] =>
  rungs.map(({ key, rung, bracket, length, unit, cut_off, trials }) => ({
    key,
    rung,
    bracket: bracket ?? undefined,
    length,
    unit,
    cutOff: cut_off ?? undefined,
    dots: trials.map(({ trial_id, metric, ...one }) => ({
      ...one,
      trial: trial_id,
      at: key,
      metric: metric ?? undefined,
    })),
  }))

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
