/** What is said of trials that are not resumed exactly, above all tabs of their experiment. */

interface Trial {
  number: number
  breaks?: readonly string[]
}

const REASONS_MAX = 5
/** They are the code's, and so nearly always the same in all trials; a trial's page has all of its own. */

export interface Inexact {
  sentence: string
  /** Of the first trial that it was noticed of. */
  first: number
  trials: number
}

/** Each reason once, in the order of its trials, and the number of those that are left out. */
export function inexact(trials: readonly Trial[]): { told: Inexact[]; more: number } {
  const found = new Map<string, Inexact>()
  for (const { number, breaks } of trials) {
    for (const sentence of breaks ?? []) {
      const one = found.get(sentence)
      if (one === undefined) found.set(sentence, { sentence, first: number, trials: 1 })
      else one.trials += 1
    }
  }
  const all = [...found.values()]
  return { told: all.slice(0, REASONS_MAX), more: Math.max(0, all.length - REASONS_MAX) }
}
