/** The lineage of population-based training, from the log alone: which trial copied whom, when, and what it changed. */

import { exactText } from './exactJson'
import { flat } from './flatNames'
import { drawable } from './numbers'
import type { LogEvent } from './outdatedQueries'

/** Events that the lineage is made of. */
export const LINEAGE_TYPES = ['TrialRequested', 'TrialStopped']

export interface Copy {
  trial: string
  number: number
  /** Trial that it goes on from; undefined for one of the first generation. */
  parent: string | undefined
  /** Column: 0 for the first generation. */
  generation: number
  /** Value of the parent when it was copied. */
  parentMetric: number | undefined
  stopped: 'completed' | 'early_stopped' | 'failed' | 'canceled' | undefined
  /** Hyperparameters that differ from the parent's, with both values. */
  changed: { name: string; from: string; to: string }[]
  /** The gateway's sentence about why it was made, and about its end. */
  sentences: string[]
  position: number
  time_us: number
}

/** Trials in the order in which they were asked for; `upto`: only what was decided by then. */
export function lineageOf(events: readonly LogEvent[], upto = Number.POSITIVE_INFINITY): Copy[] {
  const found = new Map<string, Copy & { values: Map<string, string> }>()
  for (const event of events) {
    if (event.position > upto) break
    const trial = String(event.data.trial_id ?? '')
    if (event.type === 'TrialRequested') {
      const parent = found.get(String(event.data.parent_trial_id ?? ''))
      const values = valuesOf(event.data.hyperparameters)
      found.set(trial, {
        trial,
        number: Number(event.data.trial_number ?? 0),
        parent: event.data.parent_trial_id == null ? undefined : String(event.data.parent_trial_id),
        generation: parent === undefined ? 0 : parent.generation + 1,
        ...reasonOf(event, parent),
        stopped: undefined,
        changed: parent === undefined ? [] : differences(parent.values, values),
        sentences: event.sentence === undefined ? [] : [event.sentence],
        position: event.position,
        time_us: event.time_us,
        values,
      })
    } else if (event.type === 'TrialStopped') {
      const known = found.get(trial)
      if (known === undefined) continue
      known.stopped = event.data.outcome as Copy['stopped']
      if (event.sentence !== undefined) known.sentences.push(event.sentence)
    }
  }
  return [...found.values()].map(({ values: _, ...copy }) => copy)
}

/** The generation after which it was copied, as it was recorded; a copy of a copy is further right in any case. */
function reasonOf(event: LogEvent, parent: Copy | undefined) {
  const reason = event.data.reason as { numbers?: Record<string, unknown> } | undefined
  const generation = reason?.numbers?.generation
  const recorded = typeof generation === 'number' ? { generation: generation + 1 } : {}
  return { parentMetric: drawable(reason?.numbers?.parent_metric), ...(parent === undefined ? {} : recorded) }
}

function valuesOf(hyperparameters: unknown): Map<string, string> {
  const given = typeof hyperparameters === 'object' && hyperparameters !== null ? hyperparameters : {}
  return new Map(
    Object.entries(flat(given as Record<string, unknown>)).map(([name, value]) => [
      name,
      typeof value === 'string' ? value : exactText(value),
    ]),
  )
}

function differences(before: Map<string, string>, after: Map<string, string>) {
  const names = [...new Set([...before.keys(), ...after.keys()])].sort()
  return names
    .filter((name) => before.get(name) !== after.get(name))
    .map((name) => ({ name, from: before.get(name) ?? '–', to: after.get(name) ?? '–' }))
}

export interface Placed {
  copy: Copy
  /** Row, from 0. A copy that nobody else of its line was made from before stands in its parent's row. */
  row: number
}

/** A tree drawn from left to right: children of one trial below each other, as near to it as there is room. */
export function placed(copies: readonly Copy[]): Placed[] {
  const children = new Map<string, Copy[]>()
  const known = new Set(copies.map((copy) => copy.trial))
  const roots: Copy[] = []
  for (const copy of copies) {
    if (copy.parent === undefined || !known.has(copy.parent)) roots.push(copy)
    else children.set(copy.parent, [...(children.get(copy.parent) ?? []), copy])
  }
  const rows: Placed[] = []
  let next = 0
  // Without recursion: a line may be as long as there are generations.
  const waiting = roots.map((copy) => ({ copy, row: -1 })).reverse()
  for (let item = waiting.pop(); item !== undefined; item = waiting.pop()) {
    const row = item.row >= 0 ? item.row : next
    next = Math.max(next, row + 1)
    rows.push({ copy: item.copy, row })
    const [first, ...rest] = [...(children.get(item.copy.trial) ?? [])]
    for (const copy of rest.reverse()) waiting.push({ copy, row: -1 })
    if (first !== undefined) waiting.push({ copy: first, row })
  }
  return rows
}

/** The trial and all that it comes from, and all that come from it: what is picked out. */
export function line(copies: readonly Copy[], trial: string): Set<string> {
  const byTrial = new Map(copies.map((copy) => [copy.trial, copy]))
  const found = new Set<string>()
  for (let at = byTrial.get(trial); at !== undefined; at = byTrial.get(at.parent ?? '')) found.add(at.trial)
  const descendants = new Set([trial])
  for (const copy of copies) if (copy.parent !== undefined && descendants.has(copy.parent)) descendants.add(copy.trial)
  for (const one of descendants) if (byTrial.has(one)) found.add(one)
  return found
}
