/** What a form changes of an experiment's priority, weight and limits. */

export interface Limits {
  priority: number | null
  weight: number | null
  max_slots: number | null
  max_trials: number | null
  max_concurrent_trials: number | null
}

export type Changes = { [K in Exclude<keyof Limits, 'max_slots'>]?: number } & { max_slots?: number | null }

/** Only what differs. An empty limit of slots takes the limit away; another empty field stays as it was. */
export function changes(before: Limits, after: Limits): Changes {
  const found: Changes = {}
  if (after.max_slots !== before.max_slots) found.max_slots = after.max_slots
  for (const name of ['priority', 'weight', 'max_trials', 'max_concurrent_trials'] as const) {
    const value = after[name]
    if (value !== null && value !== before[name]) found[name] = value
  }
  return found
}
