/** What the page of one trial keeps in the URL. */

import { type LogSearch, logSearch } from './logSearch'
import { type Zoom, zoomOf } from './zoom'

const TABS = ['curves', 'runs', 'checkpoints', 'logs', 'record'] as const

export type TrialTab = (typeof TABS)[number]
export type TrialAxis = 'batches' | 'time'

export interface TrialSearch extends LogSearch {
  tab?: TrialTab | undefined
  /** Part of the names of the metrics that are shown. */
  metric?: string | undefined
  x?: TrialAxis | undefined
  log?: boolean | undefined
  smooth?: number | undefined
  /** Its horizontal part is that of all pictures, its vertical part that of the metric `zoomed`. */
  zoom?: Zoom | undefined
  zoomed?: string | undefined
  /** Run whose steps are shown. */
  run?: string | undefined
  /** Checkpoint whose files are shown. */
  checkpoint?: string | undefined
}

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function trialSearch(raw: Record<string, unknown>): TrialSearch {
  const found: TrialSearch = logSearch(raw)
  if (TABS.some((tab) => tab === raw.tab)) found.tab = raw.tab as TrialTab
  if (raw.x === 'batches' || raw.x === 'time') found.x = raw.x
  for (const key of ['metric', 'run', 'checkpoint', 'zoomed'] as const)
    if (typeof raw[key] === 'string' && raw[key] !== '') found[key] = raw[key]
  if (typeof raw.log === 'boolean') found.log = raw.log
  if (typeof raw.smooth === 'number' && raw.smooth > 0 && raw.smooth < 1) found.smooth = raw.smooth
  const zoom = zoomOf(raw.zoom)
  if (zoom !== undefined) found.zoom = zoom
  return found
}

/** The part of one metric's picture that is shown. */
export function zoomIn({ zoom, zoomed }: TrialSearch, metric: string): Zoom | undefined {
  if (zoom === undefined || zoomed === metric) return zoom
  return zoomOf([zoom[0], zoom[1], null, null])
}

/** Number of the experiment of a trial such as "12-3"; undefined for what is no trial's id. */
export function experimentOf(trial: string): number | undefined {
  const found = /^([1-9][0-9]{0,15})-[1-9][0-9]{0,8}$/.exec(trial)
  return found === null ? undefined : Number(found[1])
}
