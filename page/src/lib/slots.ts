/** Which experiment used which slot when, from the log alone: what `tenuto job picture` draws. */

import type { EventType } from '../api/eventTypes'
import type { LogEvent } from './outdatedQueries'

/** Events that the picture is made of. */
export const SLOT_TYPES: readonly EventType[] = [
  'AllocationGranted', 'AllocationReleased', 'AllocationPreempted', 'AllocationResized', 'AgentJoined', 'AgentLost', 'SlotsClosed',
  'SlotsOpened', 'PoolPolicyChanged', 'ShareChanged', 'ExperimentPriorityChanged', 'ExperimentWeightChanged',
  'ExperimentSlotLimitChanged', 'ExperimentPoolChanged',
] // biome-ignore format: a list of names

export interface Bar {
  agent: string
  slot: number
  from: number
  /** Undefined: the slot is in use at the picture's end. */
  until: number | undefined
  experiment: number
  trial: string
  allocation: string
}

export interface Outage {
  agent: string
  slot: number
  from: number
  until: number | undefined
  why: 'closed' | 'gone'
}

export interface Picture {
  bars: Bar[]
  outages: Outage[]
  /** Allocations that were told to save and leave. */
  told: { time: number; allocation: string }[]
  /** What users changed. */
  changed: { time: number; text: string }[]
  /** Slots in the order in which they are drawn. */
  rows: { agent: string; slot: number }[]
}

interface Data {
  agent_id?: string
  allocation_id?: string
  trial_id?: string
  experiment_id?: number
  slot_id?: number | null
  slots?: { agent_id?: string; slot_ids?: number[]; slot_id?: number }[]
  pool?: string
  policy?: string
  owner?: string
  name?: string
  weight?: number
  priority?: number
  max_slots?: number | null
}

export const rowKey = (agent: string, slot: number) => `${agent}\n${slot}`

/** From events in order, up to and with position `upto`. */
export function slotsPicture(events: readonly LogEvent[], upto = Number.POSITIVE_INFINITY): Picture {
  const picture: Picture = { bars: [], outages: [], told: [], changed: [], rows: [] }
  const rows = new Map<string, { agent: string; slot: number }>()
  const live = new Map<string, Bar[]>()
  const agents = new Agents(picture.outages)
  const seen = (agent: string, slot: number) => rows.set(rowKey(agent, slot), { agent, slot })
  for (const event of events) {
    if (event.position > upto) break
    const data = event.data as Data
    const time = event.time_us
    const allocation = data.allocation_id ?? ''
    if (event.type === 'AllocationGranted') {
      const bars = barsOf(data, time)
      for (const bar of bars) seen(bar.agent, bar.slot)
      picture.bars.push(...bars)
      live.set(allocation, bars)
    } else if (event.type === 'AllocationReleased') {
      for (const bar of live.get(allocation) ?? []) bar.until = time
      live.delete(allocation)
    } else if (event.type === 'AllocationPreempted' || event.type === 'AllocationResized')
      picture.told.push({ time, allocation })
    else if (agents.note(event.type, data, time)) {
      for (const slot of data.slots ?? []) if (slot.slot_id !== undefined) seen(data.agent_id ?? '', slot.slot_id)
    } else {
      const text = changeOf(event.type, data)
      if (text !== '') picture.changed.push({ time, text })
    }
  }
  picture.rows = [...rows.values()].sort(inOrder)
  return picture
}

interface Held {
  id: string
  trial_id: string
  experiment_id: number
  granted_us: number
  slots: { agent_id: string; slot_ids: number[] }[]
}

/** With allocations that hold slots now and were granted before the events that the picture was made of. */
export function withHeld(picture: Picture, held: readonly Held[]): Picture {
  const known = new Set(picture.bars.map((bar) => bar.allocation))
  const bars = held
    .filter((item) => !known.has(item.id))
    .flatMap((item) => barsOf({ ...item, allocation_id: item.id }, item.granted_us))
  if (bars.length === 0) return picture
  const rows = new Map([...picture.rows, ...bars].map(({ agent, slot }) => [rowKey(agent, slot), { agent, slot }]))
  return { ...picture, bars: [...bars, ...picture.bars], rows: [...rows.values()].sort(inOrder) }
}

export function inOrder(a: { agent: string; slot: number }, b: { agent: string; slot: number }): number {
  return a.agent.localeCompare(b.agent, undefined, { numeric: true }) || a.slot - b.slot
}

function barsOf(data: Data, time: number): Bar[] {
  return (data.slots ?? []).flatMap((part) =>
    (part.slot_ids ?? []).map((slot) => ({
      agent: part.agent_id ?? '',
      slot,
      from: time,
      until: undefined,
      experiment: data.experiment_id ?? 0,
      trial: data.trial_id ?? '',
      allocation: data.allocation_id ?? '',
    })),
  )
}

/** Which slots are out of service: closed by users, or without their agents. */
class Agents {
  readonly #slots = new Map<string, number[]>()
  readonly #lost = new Set<string>()
  readonly #closed = new Map<string, Set<number | null>>()
  readonly #open = new Map<string, Outage>()

  constructor(private readonly found: Outage[]) {}

  /** True for an event of agents and slots. */
  note(type: EventType, data: Data, time: number): boolean {
    const agent = data.agent_id ?? ''
    const closed = this.#closed.get(agent) ?? new Set()
    this.#closed.set(agent, closed)
    if (type === 'AgentJoined') {
      this.#slots.set(
        agent,
        (data.slots ?? []).map((slot) => slot.slot_id ?? 0),
      )
      this.#lost.delete(agent)
    } else if (type === 'AgentLost') this.#lost.add(agent)
    else if (type === 'SlotsClosed') closed.add(data.slot_id ?? null)
    else if (type === 'SlotsOpened') {
      if (data.slot_id == null) closed.clear()
      else closed.delete(data.slot_id)
    } else return false
    const lost = this.#lost.has(agent)
    for (const slot of this.#slots.get(agent) ?? []) {
      this.#set(agent, slot, 'gone', lost, time)
      this.#set(agent, slot, 'closed', !lost && (closed.has(slot) || closed.has(null)), time)
    }
    return true
  }

  #set(agent: string, slot: number, why: Outage['why'], out: boolean, time: number) {
    const key = `${rowKey(agent, slot)}\n${why}`
    const open = this.#open.get(key)
    if (out && open === undefined) {
      const outage: Outage = { agent, slot, from: time, until: undefined, why }
      this.#open.set(key, outage)
      this.found.push(outage)
    } else if (!out && open !== undefined) {
      open.until = time
      this.#open.delete(key)
    }
  }
}

function changeOf(type: EventType, data: Data): string {
  if (type === 'PoolPolicyChanged') return `pool ${data.pool}: ${data.policy}`
  if (type === 'ShareChanged') {
    const quota = data.max_slots == null ? '' : `, at most ${data.max_slots} slots`
    return `${data.owner} ${data.name}: weight ${data.weight}${quota}`
  }
  if (type === 'ExperimentPriorityChanged') return `experiment ${data.experiment_id}: priority ${data.priority}`
  if (type === 'ExperimentWeightChanged') return `experiment ${data.experiment_id}: weight ${data.weight}`
  if (type === 'ExperimentSlotLimitChanged')
    return `experiment ${data.experiment_id}: ${data.max_slots == null ? 'no limit' : `at most ${data.max_slots} slots`}`
  if (type === 'ExperimentPoolChanged') return `experiment ${data.experiment_id}: pool ${data.pool}`
  return ''
}

/** Part of the slots' time that was used, of those that were there and in service; undefined where none was. */
export function useOf(picture: Picture, from: number, until: number): number | undefined {
  const within = (item: { from: number; until: number | undefined }) =>
    Math.max(0, Math.min(item.until ?? until, until) - Math.max(item.from, from))
  const sum = (items: readonly { from: number; until: number | undefined }[]) =>
    items.reduce((all, item) => all + within(item), 0)
  const offered = picture.rows.length * (until - from) - sum(picture.outages)
  return offered <= 0 ? undefined : Math.min(1, sum(picture.bars) / offered)
}

/** The first time of anything drawn. */
export function startOf(picture: Picture): number | undefined {
  const times = [...picture.bars, ...picture.outages].map((item) => item.from)
  return times.length === 0 ? undefined : times.reduce((least, time) => Math.min(least, time))
}

export interface Range {
  from: number
  until: number
}

/** `factor` < 1 shows less, around `around` (a part of the width); within the whole. */
export function zoomed(range: Range, whole: Range, factor: number, around = 0.5): Range | undefined {
  const length = Math.max(1_000_000, (range.until - range.from) * factor)
  if (length >= whole.until - whole.from) return undefined
  const middle = range.from + around * (range.until - range.from)
  return moved({ from: middle - around * length, until: middle + (1 - around) * length }, whole, 0)
}

/** Moved by `part` of its width, not beyond the whole. */
export function moved(range: Range, whole: Range, part: number): Range {
  const length = range.until - range.from
  const from = Math.max(whole.from, Math.min(whole.until - length, range.from + part * length))
  return { from: Math.round(from), until: Math.round(from + length) }
}
