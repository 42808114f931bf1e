/** The lineage of population-based training, as the gateway tells it, and where it is drawn. */

import type { LineageView } from '../api/openapi'
import { exactText } from './exactJson'

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

/** In the order in which they were asked for. */
export const copiesOf = ({ trials }: LineageView): Copy[] =>
  trials.map(({ trial_id, number, parent_id, generation, parent_metric, outcome, changed, sentences, ...one }) => ({
    trial: trial_id,
    number,
    parent: parent_id ?? undefined,
    generation,
    parentMetric: parent_metric ?? undefined,
    stopped: outcome ?? undefined,
    changed: changed.map(({ name, before, after }) => ({ name, from: textOf(before), to: textOf(after) })),
    sentences,
    position: one.position,
    time_us: one.time_us,
  }))

function textOf(value: unknown): string {
  if (value === null || value === undefined) return '–'
  return typeof value === 'string' ? value : exactText(value)
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
