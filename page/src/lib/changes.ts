/** What a form changes of an experiment's priority, weight and limits. */

export interface Limits {
  priority: number | null
  weight: number | null
  max_slots: number | null
  max_wall_hours: number | null
  max_trials: number | null
  max_concurrent_trials: number | null
}

type Removable = 'max_slots' | 'max_wall_hours'

export type Changes = { [K in Exclude<keyof Limits, Removable>]?: number } & { [K in Removable]?: number | null }

/** Only what differs. An empty limit of slots or of time takes the limit away; another empty field stays as it was. */
export function changes(before: Limits, after: Limits): Changes {
  const found: Changes = {}
  for (const name of ['max_slots', 'max_wall_hours'] as const)
    if (after[name] !== before[name]) found[name] = after[name]
  for (const name of ['priority', 'weight', 'max_trials', 'max_concurrent_trials'] as const) {
    const value = after[name]
    if (value !== null && value !== before[name]) found[name] = value
  }
  return found
}
