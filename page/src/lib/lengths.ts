/** Unit in which a search counts the lengths of its trials, from its configuration: `max_length: {epochs: 16}`. */
export function lengthUnit(config: unknown): string {
  const searcher = (config as { searcher?: { max_length?: unknown } } | null)?.searcher
  const length = searcher?.max_length
  if (typeof length !== 'object' || length === null) return 'batches'
  const named = Object.entries(length).find(([, value]) => typeof value === 'number')
  return named?.[0] ?? 'batches'
}

/** "1 epoch", "4 epochs". */
export function shownLength(length: number, unit: string): string {
  return `${length} ${length === 1 && unit !== 'batches' ? unit.replace(/s$/, '') : length === 1 ? 'batch' : unit}`
}
