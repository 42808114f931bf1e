import { describe, expect, it } from 'vitest'
import type { LogEvent } from './outdatedQueries'
import { experimentAt, slim } from './pastExperiment'

let position = 0
const event = (type: string, data: Record<string, unknown> = {}, sentence?: string): LogEvent => {
  position += 2
  const shown = sentence === undefined ? {} : { sentence }
  return { position, type, time_us: position * 1000, correlation_id: '7', data, ...shown }
}

position = 10
const config = {
  searcher: { name: 'asha', metric: 'loss', smaller_is_better: true, max_trials: 4 },
  resources: { priority: 42, pool: 'gpus' },
}
const log: LogEvent[] = [
  event('ExperimentSubmitted', { config }), // 12
  event('TrialRequested', { trial_id: '7-1', trial_number: 1, hyperparameters: { a: 1 }, target_length: 2 }, 'first'), // 14
  event('AllocationGranted', { trial_id: '7-1', allocation_id: 'x' }), // 16
  event('WorkersStarted', { trial_id: '7-1', allocation_id: 'x' }), // 18
  event('TrialProgressed', { trial_id: '7-1', batches: 60, length: 1 }), // 20
  event('ValidationReported', { trial_id: '7-1', batches: 100, length: 2, metrics: { loss: 0.5 } }), // 22
  event('TrialPaused', { trial_id: '7-1' }, 'waits'), // 24
  event('AllocationReleased', { trial_id: '7-1', allocation_id: 'x' }), // 26
  event('ExperimentPauseRequested', { experiment_id: 7 }), // 28
  event('ExperimentPriorityChanged', { priority: 7 }), // 30
  event('ExperimentResumeRequested', { experiment_id: 7 }), // 32
  event('TrialExtended', { trial_id: '7-1', target_length: 4 }, 'goes on'), // 34
  event('AllocationGranted', { trial_id: '7-1', allocation_id: 'y' }), // 36
  event('ValidationReported', { trial_id: '7-1', batches: 100, length: 2, metrics: { loss: 0.1 } }), // 38: the same again
  event('ValidationReported', { trial_id: '7-1', batches: 200, length: 4, metrics: { loss: 'NaN' } }), // 40
  event('TrialStopped', { trial_id: '7-1', outcome: 'completed' }, 'whole'), // 42
  event('AllocationReleased', { trial_id: '7-1', allocation_id: 'y' }), // 44
  event('TrialFinished', { trial_id: '7-1' }), // 46
  event('ExperimentCompleted', { best_trial_id: '7-1', best_metric: 0.5 }), // 48
]
const at = (upto: number) => experimentAt(log, upto)
const states = [14, 16, 18, 24, 26, 34, 36, 42, 46].map((upto) => at(upto)?.trials[0]?.state)

describe('experimentAt', () => {
  it('is nothing before the submission', () => expect(at(11)).toBeUndefined())

  it('follows the states of a trial', () =>
    expect(states).toEqual([
      'queued', 'starting', 'running', 'paused', 'paused', 'queued', 'starting', 'stopping', 'completed',
    ])) // biome-ignore format: a list of names

  it('follows the state and the settings of the experiment', () => {
    expect([12, 29, 33, 48].map((upto) => at(upto)?.state)).toEqual(['active', 'paused', 'active', 'completed'])
    expect([29, 30].map((upto) => at(upto)?.priority)).toEqual([42, 7])
    expect(at(12)).toMatchObject({ pool: 'gpus', max_trials: 4, ended_us: null, best_metric: null })
    expect(at(48)).toMatchObject({ ended_us: 48_000, best_trial_id: '7-1', best_metric: 0.5 })
  })

  it('knows what was reached and the best by then', () => {
    expect(at(21)).toMatchObject({ best_metric: null, trials: [{ length: 1, batches: 60, latest_metric: null }] })
    expect(at(22)).toMatchObject({ best_metric: 0.5, trials: [{ length: 2, best_metric: 0.5, latest_metric: 0.5 }] })
  })

  it('counts the first validation at a number of batches, and no NaN as the best', () => {
    expect(at(40)).toMatchObject({ best_metric: 0.5, trials: [{ best_metric: 0.5, latest_metric: 'NaN', length: 4 }] })
    expect(at(40)?.points.map((point) => point.batches)).toEqual([100, 200])
  })

  it('says why the search last decided about a trial', () =>
    expect([14, 24, 34, 42].map((upto) => at(upto)?.trials[0]?.reason)).toEqual(['first', 'waits', 'goes on', 'whole']))

  it('does not stop the position at an event of its own', () => expect(at(23)?.time_us).toBe(22_000))

  it('is the same of what is kept of the events', () =>
    expect(experimentAt(log.map(slim), 48)).toEqual(experimentAt(log, 48)))
})
