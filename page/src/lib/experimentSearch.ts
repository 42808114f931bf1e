/** What the page of one experiment keeps in the URL: tab, metric, axes, and the trial that is picked out. */

import type { XAxis } from './curves'
import { type LogSearch, logSearch } from './logSearch'
import { type Brushes, brushesOf } from './parallel'
import { type Zoom, zoomOf } from './zoom'

const TABS = ['curves', 'rungs', 'trials', 'hyperparameters', 'logs', 'code', 'configuration'] as const
const AXES: XAxis[] = ['length', 'batches', 'time']

/** Tabs that show an earlier moment where the address names one. */
export const hasMoments = (tab: string | undefined): boolean =>
  tab === undefined || tab === 'curves' || tab === 'rungs' || tab === 'trials'

export const HP_VIEWS = ['parallel', 'scatter', 'front', 'importance'] as const
export type HpView = (typeof HP_VIEWS)[number]

export interface ExperimentSearch extends LogSearch {
  tab?: string | undefined
  metric?: string | undefined
  x?: XAxis | undefined
  log?: boolean | undefined
  smooth?: number | undefined
  zoom?: Zoom | undefined
  trial?: string | undefined
  /** Position of the log that is shown instead of now. */
  at?: number | undefined
  /** Picture of the hyperparameters. */
  hp?: HpView | undefined
  brush?: Brushes | undefined
  /** Axes of the scatter picture, and whether it shows cells. */
  hx?: string | undefined
  hy?: string | undefined
  heat?: boolean | undefined
  /** Second metric of the Pareto front, and whether a larger one is better. */
  second?: string | undefined
  larger?: boolean | undefined
  /** File of the model directory. */
  file?: string | undefined
  by?: string | undefined
  down?: boolean | undefined
}

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function experimentSearch(raw: Record<string, unknown>): ExperimentSearch {
  const found: ExperimentSearch = logSearch(raw)
  if (TABS.some((tab) => tab === raw.tab)) found.tab = raw.tab as string
  if (AXES.some((axis) => axis === raw.x)) found.x = raw.x as XAxis
  for (const key of ['metric', 'trial', 'by', 'hx', 'hy', 'second', 'file'] as const)
    if (typeof raw[key] === 'string' && raw[key] !== '') found[key] = raw[key]
  for (const key of ['log', 'down', 'heat', 'larger'] as const) if (typeof raw[key] === 'boolean') found[key] = raw[key]
  if (typeof raw.smooth === 'number' && raw.smooth > 0 && raw.smooth < 1) found.smooth = raw.smooth
  if (typeof raw.at === 'number' && raw.at >= 0) found.at = raw.at
  const zoom = zoomOf(raw.zoom)
  if (zoom !== undefined) found.zoom = zoom
  if (HP_VIEWS.some((view) => view === raw.hp)) found.hp = raw.hp as HpView
  const brush = brushesOf(raw.brush)
  if (brush !== undefined) found.brush = brush
  return found
}
