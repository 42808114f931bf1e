/** States of experiments and trials: the colour of each, and which can be changed. */

export type State =
  | 'active' | 'paused' | 'canceling' | 'completed' | 'failed' | 'canceled' | 'unmanaged'
  | 'queued' | 'starting' | 'running' | 'stopping' | 'early_stopped' // biome-ignore format: a list of names

const COLORS: Record<State, string> = {
  active: 'blue',
  running: 'blue',
  starting: 'blue',
  queued: 'gray',
  paused: 'yellow',
  canceling: 'orange',
  stopping: 'orange',
  completed: 'green',
  early_stopped: 'teal',
  failed: 'red',
  canceled: 'gray',
  unmanaged: 'grape',
}

export const colorOf = (state: string): string => COLORS[state as State] ?? 'gray'

export const labelOf = (state: string): string => state.replaceAll('_', ' ')

/** Whether a trial in this state may still train. */
export const liveTrial = (state: string): boolean =>
  !['completed', 'early_stopped', 'failed', 'canceled'].includes(state)

export type Action = 'pause' | 'resume' | 'cancel' | 'kill'

/** Actions that mean something for an experiment in this state. */
export function actionsOf(state: string): Action[] {
  if (state === 'active') return ['pause', 'cancel', 'kill']
  if (state === 'paused') return ['resume', 'cancel', 'kill']
  if (state === 'canceling') return ['kill']
  return []
}
