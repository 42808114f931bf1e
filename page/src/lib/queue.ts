/** The queue of a pool: how its order is changed, and the reasons for waiting in words. */

import type { EventType } from '../api/eventTypes'
import { moment } from './time'
import { type WhatIf, whatIf } from './whatIf'

export interface QueueSearch extends WhatIf {
  pool?: string | undefined
  /** Position of the log that is shown instead of now. */
  at?: number | undefined
}

/** Events after which the queue looks different. */
export const QUEUE_TYPES: readonly EventType[] = [
  'ExperimentSubmitted', 'ExperimentMoved', 'ExperimentPriorityChanged', 'ExperimentWeightChanged', 'ExperimentSlotLimitChanged',
  'ExperimentPoolChanged', 'ExperimentPauseRequested', 'ExperimentResumeRequested', 'ExperimentCompleted', 'ExperimentCanceled',
  'ExperimentFailed', 'PoolPolicyChanged', 'ShareChanged', 'AgentJoined', 'AgentLost', 'SlotsClosed', 'SlotsOpened', 'SlotsReserved',
  'AllocationGranted', 'AllocationReleased', 'AllocationPreempted', 'AllocationResized', 'TrialRequested', 'TrialExtended',
] // biome-ignore format: a list of names

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function queueSearch(raw: Record<string, unknown>): QueueSearch {
  const found: QueueSearch = { ...whatIf(raw) }
  if (typeof raw.pool === 'string' && raw.pool !== '') found.pool = raw.pool
  if (Number.isInteger(raw.at) && Number(raw.at) > 0) found.at = Number(raw.at)
  return found
}

export interface Move {
  ahead_of?: number
  behind?: number
}

/** What is asked for so that the row at `from` stands at `to`; undefined where that changes nothing. */
export function moveTo(order: readonly number[], from: number, to: number): Move | undefined {
  const beside = order[to]
  if (beside === undefined || from === to || order[from] === undefined) return undefined
  return to < from ? { ahead_of: beside } : { behind: beside }
}

/** Index at which a row that is dropped on the row `over` will stand: before it, or behind it. */
export function dropIndex(from: number, over: number, lowerHalf: boolean): number {
  const gap = over + (lowerHalf ? 1 : 0)
  return gap > from ? gap - 1 : gap
}

interface Waits {
  text: string
  expected_us?: number | null | undefined
}

/** The scheduler's reason, with the time at which it expects the trial to start. */
export function reasonOf({ text, expected_us }: Waits): string {
  return text === '' || expected_us == null ? text : `${text.replace(/\.$/, '')}; expected ${moment(expected_us)}`
}

/** A priority that the gateway takes; undefined for anything else. */
export function priorityOf(value: string | number): number | undefined {
  const found = typeof value === 'number' ? value : Number(value || Number.NaN)
  return Number.isInteger(found) && found >= 1 && found <= 99 ? found : undefined
}
