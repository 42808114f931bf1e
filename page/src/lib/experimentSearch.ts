/** What the page of one experiment keeps in the URL: tab, metric, axes, and the trial that is picked out. */

import type { XAxis } from './curves'

const TABS = ['curves', 'rungs', 'trials', 'configuration'] as const
const AXES: XAxis[] = ['length', 'batches', 'time']

export interface ExperimentSearch {
  tab?: string | undefined
  metric?: string | undefined
  x?: XAxis | undefined
  log?: boolean | undefined
  smooth?: number | undefined
  trial?: string | undefined
  /** Position of the log that is shown instead of now. */
  at?: number | undefined
  by?: string | undefined
  down?: boolean | undefined
}

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function experimentSearch(raw: Record<string, unknown>): ExperimentSearch {
  const found: ExperimentSearch = {}
  if (TABS.some((tab) => tab === raw.tab)) found.tab = raw.tab as string
  if (AXES.some((axis) => axis === raw.x)) found.x = raw.x as XAxis
  for (const key of ['metric', 'trial', 'by'] as const)
    if (typeof raw[key] === 'string' && raw[key] !== '') found[key] = raw[key]
  for (const key of ['log', 'down'] as const) if (typeof raw[key] === 'boolean') found[key] = raw[key]
  if (typeof raw.smooth === 'number' && raw.smooth > 0 && raw.smooth < 1) found.smooth = raw.smooth
  if (typeof raw.at === 'number' && raw.at >= 0) found.at = raw.at
  return found
}
