/** The experiments that one was made from, step by step. */

export interface Step {
  /** Id of an experiment, or of the trial that was reproduced. */
  id: string
  /** How the next one was made from it. */
  relation: string
}

interface Made {
  relation?: string | null | undefined
  parent_id?: string | null | undefined
}

export const ANCESTORS_MAX = 20
/** Each is a request; longer chains are looked at from their oldest shown one on. */

/** The oldest first. Ends where there is no parent, where it may not be seen, and where an id comes again. */
export async function ancestryOf(made: Made, ask: (experiment: number) => Promise<Made>): Promise<Step[]> {
  const found: Step[] = []
  let at = made
  while (at.parent_id != null && found.length < ANCESTORS_MAX) {
    const id = at.parent_id
    if (found.some((step) => step.id === id)) break
    found.push({ id, relation: at.relation ?? 'made from' })
    try {
      at = await ask(Number(id.split('-')[0]))
    } catch {
      break
    }
  }
  return found.reverse()
}
