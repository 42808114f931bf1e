/** "What if": what was asked for in the URL, and the pictures and figures of the answer. */

import type { Picture } from './slots'
import { duration } from './time'

export const POLICIES = ['priority', 'fair_share', 'fifo'] as const
export type Policy = (typeof POLICIES)[number]
const AGENTS_MAX = 100
const SLOTS_MAX = 64
export const SLOTS = 8

export interface WhatIf {
  policy?: Policy | undefined
  /** Agents that the pool has beside its own. */
  agents?: number | undefined
  /** Slots of each of these. */
  slots?: number | undefined
}

/** What is asked for; undefined where nothing would be different. */
export function whatIf(raw: Record<string, unknown>): WhatIf | undefined {
  const policy = POLICIES.find((known) => known === raw.policy)
  const agents = whole(raw.agents, AGENTS_MAX)
  if (policy === undefined && agents === undefined) return undefined
  const found: WhatIf = {}
  if (policy !== undefined) found.policy = policy
  if (agents !== undefined) Object.assign(found, { agents, slots: whole(raw.slots, SLOTS_MAX) ?? SLOTS })
  return found
}

function whole(value: unknown, most: number): number | undefined {
  return Number.isInteger(value) && Number(value) >= 1 && Number(value) <= most ? Number(value) : undefined
}

/** In words, as the head of a picture. */
export function inWords(asked: WhatIf): string {
  const parts = [
    asked.policy === undefined ? '' : `policy ${asked.policy.replace('_', ' ')}`,
    asked.agents === undefined
      ? ''
      : `${asked.agents} more ${asked.agents === 1 ? 'agent' : 'agents'} of ${asked.slots} slots`,
  ]
  return parts.filter((part) => part !== '').join(' and ')
}

interface Course {
  segments: readonly (readonly [number, number, number, number, number])[]
}

/** Slots in use by time. All pictures of an answer have the same rows, so that they can be compared. */
export function courseOf(agents: readonly string[], courses: readonly Course[], course: Course): Picture {
  const rows = new Map<string, { agent: string; slot: number }>()
  for (const { segments } of courses)
    for (const [agent, slot] of segments) rows.set(`${agent} ${slot}`, { agent: agents[agent] ?? '', slot })
  const bars = course.segments.map(([agent, slot, from, until, experiment]) => ({
    agent: agents[agent] ?? '',
    slot,
    from,
    until,
    experiment,
    trial: experiment === 0 ? 'of an experiment that you do not see' : `of experiment ${experiment}`,
    allocation: '',
  }))
  const order = new Map(agents.map((agent, at) => [agent, at]))
  const sorted = [...rows.values()].sort(
    (a, b) => (order.get(a.agent) ?? 0) - (order.get(b.agent) ?? 0) || a.slot - b.slot,
  )
  return { bars, outages: [], told: [], changed: [], rows: sorted }
}

interface Figures {
  trials: number
  unfinished: number
  wait_mean_seconds: number
  wait_p95_seconds: number
  wait_longest_seconds: number
  used: number
  preemptions: number
  resizes: number
  took_seconds: number
}

const time = (of: (found: Figures) => number) => (found: Figures) => duration(of(found))

/** Rows of the table of figures: a name, and how each course's is shown. */
export const FIGURES: [string, (found: Figures) => string][] = [
  ['Waiting, mean', time((found) => found.wait_mean_seconds)],
  ['Waiting, 95 of 100 at most', time((found) => found.wait_p95_seconds)],
  ['Waiting, longest', time((found) => found.wait_longest_seconds)],
  ['Slots used by these trials', (found) => `${(100 * found.used).toFixed(1)} %`],
  ['From the first arrival to the last end', time((found) => found.took_seconds)],
  ['Preemptions', (found) => String(found.preemptions)],
  ['Resizes', (found) => String(found.resizes)],
  ['Trials', (found) => `${found.trials}${found.unfinished > 0 ? `, ${found.unfinished} not ended` : ''}`],
]

interface UserFigures {
  user: string
  trials: number
  wait_mean_seconds: number
  slot_hours: number
}

/** Each user's mean waiting time in each course; undefined where the user has none in it. */
export function waitsByUser(courses: readonly { figures: { users: readonly UserFigures[] } }[]) {
  const users = [...new Set(courses.flatMap(({ figures }) => figures.users.map(({ user }) => user)))].sort()
  return users.map((user) => ({
    user,
    waits: courses.map(({ figures }) => figures.users.find((one) => one.user === user)?.wait_mean_seconds),
  }))
}
