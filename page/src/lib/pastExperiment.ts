/** An experiment and its trials as they were at an earlier position: folded from its events, as the gateway folds its tables. Pure. */

import type { Point } from './curves'
import { numeric } from './exactJson'
import type { LogEvent } from './outdatedQueries'

/** Events that this is made of. */
export const STORY_TYPES = [
  'ExperimentSubmitted', 'ExperimentPauseRequested', 'ExperimentResumeRequested', 'ExperimentCancelRequested',
  'ExperimentCompleted', 'ExperimentFailed', 'ExperimentCanceled', 'ExperimentPriorityChanged', 'ExperimentPoolChanged',
  'ExperimentTrialLimitsChanged', 'TrialRequested', 'TrialExtended', 'TrialPaused', 'TrialStopped', 'TrialProgressed', 'TrainingEnded',
  'TrialFailed', 'TrialFinished', 'AllocationGranted', 'AllocationReleased', 'WorkersStarted', 'CheckpointSaved',
  'ValidationReported',
] // biome-ignore format: a list of names
const KEPT = [
  'config', 'priority', 'pool', 'max_trials', 'best_trial_id', 'best_metric', 'error', 'trial_id', 'trial_number', 'hyperparameters',
  'target_length', 'outcome', 'allocation_id', 'batches', 'length', 'metrics',
] // biome-ignore format: a list of names

/** The event without what nothing here is made of, such as the files of a checkpoint: a long search has a hundred thousand. */
export function slim(event: LogEvent): LogEvent {
  const data = Object.fromEntries(KEPT.filter((name) => name in event.data).map((name) => [name, event.data[name]]))
  const { position, type, time_us, correlation_id, sentence } = event
  return { position, type, time_us, correlation_id, data, ...(sentence !== undefined && { sentence }) }
}

type Metric = number | string | null
/** NaN and infinities are strings, as in the gateway's answers. */

export interface PastTrial {
  id: string
  number: number
  state: string
  hyperparameters: Record<string, unknown>
  target_length: number
  length: number
  /** The furthest that it had reported. */
  batches: number
  latest_metric: Metric
  best_metric: Metric
  error: string | null
  reason: string
}

export interface Past {
  state: string
  ended_us: number | null
  error: string | null
  best_trial_id: string | null
  best_metric: Metric
  priority: number
  pool: string
  max_trials: number | null
  /** Time of the newest event that counts. */
  time_us: number
  trials: PastTrial[]
  /** Validations, in their order. */
  points: Point[]
}

interface Folded extends Past {
  metric: string
  smaller: boolean
  single: boolean
  byId: Map<string, PastTrial & { allocation: string; outcome: string; validated: Set<number> }>
}

type Trial = Folded['byId'] extends Map<string, infer T> ? T : never

/** After the events up to a position; undefined where it was not submitted by then. */
export function experimentAt(events: readonly LogEvent[], upto: number): Past | undefined {
  let folded: Folded | undefined
  for (const event of events) {
    if (event.position > upto) break
    if (folded === undefined) {
      if (event.type === 'ExperimentSubmitted') folded = submitted(event)
      continue
    }
    folded.time_us = event.time_us
    const trial = folded.byId.get(String(event.data.trial_id ?? ''))
    if (event.type === 'TrialRequested') requested(folded, event)
    else if (event.type === 'ValidationReported') validated(folded, trial, event)
    else if (trial !== undefined) ofTrial(trial, event)
    else ofExperiment(folded, event)
  }
  if (folded === undefined) return undefined
  const { metric: _, smaller: __, single: ___, byId, ...past } = folded
  return { ...past, trials: [...byId.values()] }
}

type Tree = Record<string, unknown>

function submitted({ data, time_us }: LogEvent): Folded {
  const config = (data.config ?? {}) as { searcher?: Tree; resources?: Tree }
  const [searcher, resources] = [config.searcher ?? {}, config.resources ?? {}]
  return {
    state: 'active',
    ended_us: null,
    error: null,
    best_trial_id: null,
    best_metric: null,
    priority: Number(resources.priority ?? 0),
    pool: String(resources.pool ?? ''),
    max_trials: typeof searcher.max_trials === 'number' ? searcher.max_trials : null,
    time_us,
    trials: [],
    points: [],
    metric: String(searcher.metric ?? ''),
    smaller: searcher.smaller_is_better !== false,
    single: searcher.name === 'single',
    byId: new Map(),
  }
}

function requested(folded: Folded, { data, sentence }: LogEvent): void {
  const id = String(data.trial_id)
  folded.byId.set(id, {
    id,
    number: Number(data.trial_number),
    state: 'queued',
    hyperparameters: (data.hyperparameters ?? {}) as Tree,
    target_length: Number(data.target_length),
    length: 0,
    batches: 0,
    latest_metric: null,
    best_metric: null,
    error: null,
    reason: sentence ?? '',
    allocation: '',
    outcome: '',
    validated: new Set(),
  })
}

/** The first validation of a trial at a number of batches counts. */
function validated(folded: Folded, trial: Trial | undefined, { data, time_us }: LogEvent): void {
  if (trial === undefined) return
  const batches = Number(data.batches)
  if (trial.validated.has(batches)) return
  trial.validated.add(batches)
  reached(trial, data)
  const metrics = (data.metrics ?? {}) as Tree
  folded.points.push({ trial_id: trial.id, length: Number(data.length), batches, time_us, metrics })
  const metric = metricOf(metrics[folded.metric])
  trial.latest_metric = metric
  if (better(metric, trial.best_metric, folded.smaller)) trial.best_metric = metric
  if (!better(metric, folded.best_metric, folded.smaller)) return
  folded.best_metric = metric
  folded.best_trial_id = trial.id
}

const metricOf = (value: unknown): Metric => numeric(value) ?? (typeof value === 'string' ? value : null)

function better(value: Metric, best: Metric, smaller: boolean): boolean {
  if (value === null || Number.isNaN(Number(value))) return false
  return best === null || (smaller ? Number(value) < Number(best) : Number(value) > Number(best))
}

function reached(trial: Trial, data: Tree): void {
  trial.batches = Math.max(trial.batches, Number(data.batches))
  trial.length = Math.max(trial.length, Number(data.length))
}

function ofTrial(trial: Trial, { type, data, sentence }: LogEvent): void {
  const decided = (state: string) => {
    trial.state = state
    trial.reason = sentence ?? ''
  }
  if (type === 'TrialExtended') {
    trial.target_length = Number(data.target_length)
    decided(trial.state !== 'paused' ? trial.state : trial.allocation === '' ? 'queued' : 'running')
  } else if (type === 'TrialPaused') decided('paused')
  else if (type === 'TrialStopped') {
    trial.outcome = String(data.outcome)
    decided('stopping')
  } else if (type === 'TrialFinished') trial.state = trial.outcome || trial.state
  else if (type === 'TrialFailed') trial.error = data.error == null ? null : String(data.error)
  else if (type === 'TrialProgressed' || type === 'TrainingEnded' || type === 'CheckpointSaved') reached(trial, data)
  else if (type === 'AllocationGranted') {
    trial.allocation = String(data.allocation_id)
    if (trial.state === 'queued') trial.state = 'starting'
  } else if (type === 'WorkersStarted') {
    if (trial.state === 'starting') trial.state = 'running'
  } else if (type === 'AllocationReleased' && trial.allocation === String(data.allocation_id)) {
    trial.allocation = ''
    if (trial.state === 'starting' || trial.state === 'running') trial.state = 'queued'
  }
}

const STATES: Record<string, string> = {
  ExperimentPauseRequested: 'paused',
  ExperimentResumeRequested: 'active',
  ExperimentCancelRequested: 'canceling',
  ExperimentCompleted: 'completed',
  ExperimentFailed: 'failed',
  ExperimentCanceled: 'canceled',
}
const ENDS = ['ExperimentCompleted', 'ExperimentFailed', 'ExperimentCanceled']

function ofExperiment(folded: Folded, { type, data, time_us }: LogEvent): void {
  folded.state = STATES[type] ?? folded.state
  if (type === 'ExperimentPriorityChanged') folded.priority = Number(data.priority)
  else if (type === 'ExperimentPoolChanged') folded.pool = String(data.pool)
  else if (type === 'ExperimentTrialLimitsChanged' && typeof data.max_trials === 'number' && !folded.single)
    folded.max_trials = data.max_trials
  if (!ENDS.includes(type)) return
  folded.ended_us = time_us
  folded.error = type === 'ExperimentFailed' ? String(data.error ?? '') : null
  if (typeof data.best_trial_id === 'string') folded.best_trial_id = data.best_trial_id
  if (data.best_metric != null) folded.best_metric = metricOf(data.best_metric)
}
