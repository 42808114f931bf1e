/** How far an experiment is, and about how long it still takes. */

import { liveTrial } from './states'

interface Trial {
  state: string
  length: number
  target_length: number
}

interface Of {
  state: string
  submitted_us: number
  ended_us: number | null
  max_trials?: number | null | undefined
}

export interface Progress {
  /** From 0 to 1. */
  part: number
  ended: number
  /** Trials in all, as far as that is known by now. */
  all: number
  /** Seconds that are left if it goes on as fast as so far; undefined where that cannot be said yet. */
  leftSeconds: number | undefined
}

const PART_MIN = 0.05
/** With less done, a guess of the time that is left would be worth nothing. */

/** A trial that ended counts whole, however short it was; one that runs by its length. */
export function progressOf(item: Of, trials: readonly Trial[], nowUs: number): Progress {
  const ended = trials.filter((trial) => !liveTrial(trial.state)).length
  const all = Math.max(trials.length, item.max_trials ?? 0)
  const running = trials
    .filter((trial) => liveTrial(trial.state) && trial.target_length > 0)
    .reduce((sum, trial) => sum + Math.min(1, trial.length / trial.target_length), 0)
  const part = item.ended_us !== null ? 1 : all === 0 ? 0 : Math.min(1, (ended + running) / all)
  const took = (nowUs - item.submitted_us) / 1e6
  const known = item.state === 'active' && part >= PART_MIN && part < 1
  return { part, ended, all, leftSeconds: known ? (took * (1 - part)) / part : undefined }
}
