/** What is said of trials that failed, above all tabs of their experiment. */

interface Trial {
  number: number
  state: string
  error?: string | null
}

const ERROR_CHARACTERS = 300
/** Of the first error: its trial's page has all of it. */

/** A title and a sentence; undefined where none failed. */
export function toldFailed(trials: readonly Trial[]): { title: string; first: Trial; error: string } | undefined {
  const failed = trials.filter((trial) => trial.state === 'failed')
  const [first] = failed
  if (first === undefined) return undefined
  const title =
    failed.length === 1 ? `Trial ${first.number} failed` : `${failed.length.toLocaleString('en')} trials failed`
  const error = (first.error ?? '').trim()
  return { title, first, error: error.length > ERROR_CHARACTERS ? `${error.slice(0, ERROR_CHARACTERS - 1)}…` : error }
}
