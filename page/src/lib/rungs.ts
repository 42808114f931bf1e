/** The rungs of a search, from the reasons of its recorded decisions: who was compared where, with which value, and what became of it. */

import type { LogEvent } from './live'
import { drawable } from './numbers'

export type Fate = 'waits' | 'goes on' | 'stopped' | 'completed'

export interface Dot {
  trial: string
  rung: number
  metric: number
  fate: Fate
  /** The gateway's sentence about the newest decision here. */
  sentence: string
  position: number
}

export interface Rung {
  rung: number
  length: number
  unit: string
  /** The value of the last trial that may go on, as of the newest comparison; undefined while too few are there. */
  cutOff: number | undefined
  dots: Dot[]
}

interface Numbers {
  rung?: unknown
  length?: unknown
  unit?: unknown
  metric?: unknown
  cut_off?: unknown
}

const FATES: Record<string, Fate> = { TrialPaused: 'waits', TrialExtended: 'goes on', TrialStopped: 'stopped' }
export const DECISIONS = Object.keys(FATES)

function numbersOf(event: LogEvent): Numbers | undefined {
  const reason = event.data.reason
  if (typeof reason !== 'object' || reason === null || !('numbers' in reason)) return undefined
  return reason.numbers as Numbers
}

/** Rungs in the order of their length; none for a search that compares at no rungs. `upto`: only what was decided by then. */
export function rungsOf(events: readonly LogEvent[], upto = Number.POSITIVE_INFINITY): Rung[] {
  const rungs = new Map<number, Rung & { byTrial: Map<string, Dot> }>()
  for (const event of events) {
    const fate = FATES[event.type]
    if (fate === undefined || event.position > upto) continue
    const numbers = numbersOf(event)
    const metric = drawable(numbers?.metric)
    if (typeof numbers?.rung !== 'number' || metric === undefined) continue
    const { rung } = numbers
    let found = rungs.get(rung)
    if (found === undefined) {
      found = {
        rung,
        length: Number(numbers.length ?? 0),
        unit: String(numbers.unit ?? 'batches'),
        cutOff: undefined,
        dots: [],
        byTrial: new Map(),
      }
      rungs.set(rung, found)
    }
    if (fate !== 'stopped') found.cutOff = drawable(numbers.cut_off) ?? found.cutOff
    const trial = String(event.data.trial_id)
    found.byTrial.set(trial, {
      trial,
      rung,
      metric,
      fate: event.data.outcome === 'completed' ? 'completed' : fate,
      sentence: event.sentence ?? '',
      position: event.position,
    })
  }
  return [...rungs.values()]
    .sort((a, b) => a.length - b.length || a.rung - b.rung)
    .map(({ byTrial, ...rung }) => ({ ...rung, dots: [...byTrial.values()] }))
}

/** Pairs of dots of one trial at neighbouring rungs: its promotions. */
export function promotions(rungs: readonly Rung[]): [Dot, Dot][] {
  const pairs: [Dot, Dot][] = []
  for (let index = 1; index < rungs.length; index += 1) {
    const before = new Map(rungs[index - 1]?.dots.map((dot) => [dot.trial, dot]))
    for (const dot of rungs[index]?.dots ?? []) {
      const from = before.get(dot.trial)
      if (from !== undefined) pairs.push([from, dot])
    }
  }
  return pairs
}
