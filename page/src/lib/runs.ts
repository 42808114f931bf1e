/** The runs of a trial on its slots as a time line, and what `story` tells of them, in words. */

import { duration, secondsBetween } from './time'

export interface Run {
  id: string
  slots: { agent_id: string; slot_ids: number[] }[]
  state: string
  reason: string
  outcome: string | null
  exit_code: number | null
  error: string | null
  granted_us: number
  started_us: number | null
  leaving_us?: number | null | undefined
  leaving_reason?: string | null | undefined
  exited_us: number | null
  released_us: number | null
}

export interface Saved {
  id: string
  batches: number
  saved_us: number
  damaged_us?: number | null | undefined
}

export type PhaseKind = 'starting' | 'running' | 'leaving'

export interface Phase {
  kind: PhaseKind
  from: number
  until: number
}

/** When the run held its slots, in parts; `now` where it still does. */
export function phases(run: Run, now: number): Phase[] {
  const end = run.exited_us ?? run.released_us ?? now
  const started = run.started_us ?? (run.leaving_us == null ? end : Math.min(end, run.leaving_us))
  const leaving = Math.max(started, run.leaving_us ?? end)
  const found: Phase[] = [
    { kind: 'starting', from: run.granted_us, until: Math.min(started, end) },
    { kind: 'running', from: started, until: Math.min(leaving, end) },
    { kind: 'leaving', from: leaving, until: end },
  ]
  return found.filter((phase) => phase.until > phase.from)
}

/** From the first grant to the last end. */
export function span(runs: readonly Run[], now: number): [number, number] {
  const from = Math.min(...runs.map((run) => run.granted_us))
  const until = Math.max(...runs.map((run) => run.released_us ?? run.exited_us ?? now))
  return [from, Math.max(until, from + 1)]
}

/** "agent-1 slots 0, 1; agent-2". */
export function placesOf(run: Run): string {
  return run.slots
    .map(({ agent_id, slot_ids }) => {
      if (slot_ids.length === 0) return agent_id
      return `${agent_id} ${slot_ids.length === 1 ? 'slot' : 'slots'} ${slot_ids.join(', ')}`
    })
    .join('; ')
}

/** The newest checkpoint from before the run that no run had found damaged by then: there it went on. */
export function resumedFrom(run: Run, checkpoints: readonly Saved[]): Saved | undefined {
  return checkpoints
    .filter(
      (one) =>
        one.saved_us <= run.granted_us &&
        (one.damaged_us == null || one.damaged_us > (run.exited_us ?? one.damaged_us)),
    )
    .reduce<Saved | undefined>(
      (newest, one) => (newest === undefined || one.batches >= newest.batches ? one : newest),
      undefined,
    )
}

const ENDS: Record<string, string> = {
  finished: 'The workers left, as the trial was stopped or complete.',
  preempted: 'The workers saved a checkpoint and left.',
  paused: 'The workers saved a checkpoint and left, as the search paused the trial.',
  failed: "The user's code failed",
  lost: 'The workers were killed, or their agent was lost',
}

export interface Step {
  time_us: number
  name: 'granted' | 'resumed' | 'started' | 'preempted' | 'ended' | 'released'
  text: string
}

/** Each step of a run in a sentence, in order. */
export function stepsOf(run: Run, checkpoints: readonly Saved[]): Step[] {
  const steps: Step[] = [{ time_us: run.granted_us, name: 'granted', text: `${placesOf(run)}. ${run.reason}`.trim() }]
  const from = resumedFrom(run, checkpoints)
  if (from !== undefined)
    steps.push({
      time_us: run.granted_us,
      name: 'resumed',
      text: `From checkpoint ${from.id} at batch ${from.batches}.`,
    })
  if (run.started_us !== null)
    steps.push({
      time_us: run.started_us,
      name: 'started',
      text: `After ${duration(secondsBetween(run.granted_us, run.started_us))}.`,
    })
  if (run.leaving_us != null)
    steps.push({ time_us: run.leaving_us, name: 'preempted', text: run.leaving_reason || 'Told to save and leave.' })
  if (run.exited_us !== null) steps.push({ time_us: run.exited_us, name: 'ended', text: endOf(run) })
  if (run.released_us !== null && run.exited_us === null)
    steps.push({
      time_us: run.released_us,
      name: 'released',
      text: 'The slots were given back before the workers had started.',
    })
  return steps.sort((a, b) => a.time_us - b.time_us)
}

function endOf(run: Run): string {
  const text = ENDS[run.outcome ?? ''] ?? 'The workers left.'
  if (text.endsWith('.')) return text
  const code = run.exit_code === null ? '' : ` (exit code ${run.exit_code})`
  return `${text}${code}${run.error ? `: ${run.error}` : '.'}`
}
