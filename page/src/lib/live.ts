/** What an event of the log makes out of date: pure, so that tests say which tables follow which events. */

export interface LogEvent {
  position: number
  type: string
  time_us: number
  correlation_id: string
  data: Record<string, unknown>
  sentence?: string
}

export type Key =
  | readonly ['experiments' | 'agents' | 'queue' | 'status']
  | readonly ['experiment' | 'trials' | 'validations' | 'decisions', number]

const OF_EXPERIMENT = [
  'ExperimentSubmitted', 'ExperimentStarted', 'ExperimentPauseRequested', 'ExperimentResumeRequested', 'ExperimentCancelRequested',
  'ExperimentCompleted', 'ExperimentFailed', 'ExperimentCanceled', 'ExperimentPriorityChanged', 'ExperimentWeightChanged',
  'ExperimentSlotLimitChanged', 'ExperimentPoolChanged', 'ExperimentTrialLimitsChanged', 'ExperimentDescribed', 'ExperimentArchived',
  'ExperimentUnarchived',
] // biome-ignore format: a list of names
const OF_TRIAL = [
  'TrialRequested', 'TrialExtended', 'TrialPaused', 'TrialStopped', 'TrialProgressed', 'TrialFailed', 'TrialFinished',
  'AllocationGranted', 'AllocationPreempted', 'AllocationReleased', 'WorkersStarted', 'WorkersExited', 'StragglerNoticed',
] // biome-ignore format: a list of names
const OF_SEARCH = ['TrialExtended', 'TrialPaused', 'TrialStopped']
const OF_SLOTS = [
  'AgentJoined',
  'AgentLost',
  'SlotsClosed',
  'SlotsOpened',
  'AllocationGranted',
  'AllocationReleased',
  'AllocationResized',
]
const OF_QUEUE = [
  'AllocationGranted', 'AllocationReleased', 'AllocationPreempted', 'SlotsReserved', 'ExperimentMoved', 'PoolPolicyChanged', 'ShareChanged',
  'TrialRequested', 'TrialExtended', 'TrialPaused', 'TrialStopped', 'ExperimentPriorityChanged',
] // biome-ignore format: a list of names

/** Types that the page listens for. */
export const FOLLOWED = [...new Set([...OF_EXPERIMENT, ...OF_TRIAL, ...OF_SLOTS, ...OF_QUEUE, 'ValidationReported'])]

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
  if (OF_SLOTS.includes(event.type)) keys.push(['agents'])
  if (OF_QUEUE.includes(event.type)) keys.push(['queue'])
  return keys
}
