/** Values of metrics that no picture can draw: they are told in words. */

interface Measured {
  batches: number
  trial_id?: string
  metrics: Record<string, unknown>
}

const WORDS = ['NaN', 'Infinity', '-Infinity']

/** JSON has no word for them, so the gateway sends them as texts. */
export const isNotFinite = (value: unknown): boolean => typeof value === 'string' && WORDS.includes(value)

/** One sentence on the values of a metric that are in no picture; empty where all of them are. */
export function toldNotFinite(points: readonly Measured[], metric: string): string {
  const found = points.filter((point) => isNotFinite(point.metrics[metric]))
  const [first] = found
  if (first === undefined) return ''
  const value = String(first.metrics[metric])
  const where = `${first.trial_id === undefined ? '' : `trial ${first.trial_id} at `}batch ${first.batches}`
  if (found.length === 1) return `One value is not drawn: ${value}, of ${where}.`
  return `${found.length.toLocaleString('en')} values that are not finite are not drawn, the first of them ${value}, of ${where}.`
}
