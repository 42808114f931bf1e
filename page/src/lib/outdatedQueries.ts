/** What an event of the log makes out of date: pure, so that tests say which tables follow which events. */

import type { EventType } from '../api/eventTypes'
import { SLOT_TYPES } from './slots'

export interface LogEvent {
  position: number
  type: EventType
  time_us: number
  correlation_id: string
  data: Record<string, unknown>
  sentence?: string
}

export type Key =
  | readonly ['experiments' | 'agents' | 'allocations' | 'slots' | 'queue' | 'status' | 'nodes']
  | readonly ['experiment' | 'trials' | 'validations' | 'decisions', number]

const OF_EXPERIMENT: readonly EventType[] = [
  'ExperimentSubmitted', 'ExperimentStarted', 'ExperimentPauseRequested', 'ExperimentResumeRequested', 'ExperimentCancelRequested',
  'ExperimentCompleted', 'ExperimentFailed', 'ExperimentCanceled', 'ExperimentPriorityChanged', 'ExperimentWeightChanged',
  'ExperimentSlotLimitChanged', 'ExperimentTimeLimitChanged', 'ExperimentPoolChanged', 'ExperimentTrialLimitsChanged', 'ExperimentDescribed', 'ExperimentArchived',
  'ExperimentUnarchived',
] // biome-ignore format: a list of names
const OF_TRIAL: readonly EventType[] = [
  'TrialRequested', 'TrialExtended', 'TrialPaused', 'TrialStopped', 'TrialProgressed', 'TrialFailed', 'TrialFinished', 'TrainingEnded',
  'AllocationGranted', 'AllocationPreempted', 'AllocationReleased', 'WorkersStarted', 'WorkersExited', 'StragglerNoticed',
  'CheckpointSaved', 'CheckpointDeleted', 'CheckpointDamaged',
] // biome-ignore format: a list of names
const OF_SEARCH: readonly EventType[] = ['TrialRequested', 'TrialExtended', 'TrialPaused', 'TrialStopped']
const OF_SLOTS: readonly EventType[] = [
  'AgentJoined',
  'AgentLost',
  'SlotsClosed',
  'SlotsOpened',
  'AllocationGranted',
  'AllocationReleased',
  'AllocationResized',
]
const OF_QUEUE: readonly EventType[] = [
  'AllocationGranted', 'AllocationReleased', 'AllocationPreempted', 'SlotsReserved', 'ExperimentMoved', 'PoolPolicyChanged', 'ShareChanged',
  'TrialRequested', 'TrialExtended', 'TrialPaused', 'TrialStopped', 'ExperimentPriorityChanged',
] // biome-ignore format: a list of names

const OF_NODES: readonly EventType[] = [
  'PoolProvisioned', 'CapacityWanted', 'NodeRequested', 'NodeStarted', 'NodeFailed', 'NodeReleased', 'NodeEnded', 'AgentJoined', 'AgentLost',
] // biome-ignore format: a list of names

/** Types that the page listens for. */
export const FOLLOWED: readonly EventType[] = [
  ...new Set<EventType>([
    ...OF_EXPERIMENT,
    ...OF_TRIAL,
    ...OF_SLOTS,
    ...OF_QUEUE,
    ...SLOT_TYPES,
    ...OF_NODES,
    'ValidationReported',
  ]),
]

/** Keys of the queries that show something else after this event. */
export function outdated(event: Pick<LogEvent, 'type' | 'correlation_id'>): Key[] {
  const keys: Key[] = []
  const experiment = /^[0-9]+$/.test(event.correlation_id) ? Number(event.correlation_id) : undefined
  const ofExperiment = OF_EXPERIMENT.includes(event.type)
  const ofTrial = OF_TRIAL.includes(event.type)
  const validation = event.type === 'ValidationReported'
  if (experiment !== undefined) {
    if (ofExperiment || ofTrial || validation) keys.push(['experiment', experiment])
    if (ofTrial || validation) keys.push(['trials', experiment])
    if (validation) keys.push(['validations', experiment])
    if (OF_SEARCH.includes(event.type)) keys.push(['decisions', experiment])
  }
  if (ofExperiment || ofTrial || validation) keys.push(['experiments'])
  if (OF_SLOTS.includes(event.type)) keys.push(['agents'], ['allocations'])
  if (SLOT_TYPES.includes(event.type)) keys.push(['slots'])
  if (OF_QUEUE.includes(event.type)) keys.push(['queue'])
  if (OF_NODES.includes(event.type)) keys.push(['nodes'])
  return keys
}

export const REFRESH_MS = 400
/** A change is shown within so long ... */
const REFRESH_BUSY_MS = 2_000
/** ... and while there is always more, so often: 200 open pages would else ask the gateway 500 times a second. */

export const SETTLE_MS = 5_000
/** So long after the last change everything about it is asked for once more: the gateway's tables follow the log, after a restart
 * of it by seconds, so the answer that an event brought may be older than the event. */

/** Names whose last change was so long ago. */
export function settled(changed: ReadonlyMap<string, number>, nowMs: number): string[] {
  return [...changed].filter(([, time]) => nowMs - time >= SETTLE_MS).map(([name]) => name)
}

export const BEHIND_MS = 6_000
/** Three refreshes while there is always more: what is not shown by then, somebody should know of. */

/** Whether what happened at one of these times is still not shown. */
export function isBehind(since: Iterable<number>, nowMs: number): boolean {
  for (const time of since) if (nowMs - time > BEHIND_MS) return true
  return false
}

export interface Pace {
  due: number
  /** Nothing is asked again before. */
  wait: number
  /** To the refresh after the next one. */
}

export const AT_REST: Pace = { due: 0, wait: REFRESH_MS }

/** Whether what is out of date is asked for now, and the pace from then on: slower while changes come, fast again after a rest. */
export function refreshed(pace: Pace, nowMs: number, outdatedNow: boolean): { now: boolean; pace: Pace } {
  if (!outdatedNow) return { now: false, pace: nowMs >= pace.due + pace.wait ? AT_REST : pace }
  if (nowMs < pace.due) return { now: false, pace }
  return { now: true, pace: { due: nowMs + pace.wait, wait: Math.min(2 * pace.wait, REFRESH_BUSY_MS) } }
}
