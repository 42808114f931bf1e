/** Nodes that come and go: what the address holds, and what is said of pools and nodes in words. Pure. */

import { shownNumber } from './numbers'
import { moment } from './time'

export interface NodesSearch {
  /** Only this pool. */
  pool?: string | undefined
  /** The node whose log is open. */
  logs?: string | undefined
}

const NAME = /^[A-Za-z0-9_.-]{1,128}$/

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function nodesSearch(raw: Record<string, unknown>): NodesSearch {
  const found: NodesSearch = {}
  if (typeof raw.pool === 'string' && NAME.test(raw.pool)) found.pool = raw.pool
  if (typeof raw.logs === 'string' && NAME.test(raw.logs)) found.logs = raw.logs
  return found
}

const COLORS: Record<string, string> = {
  requested: 'gray',
  started: 'blue',
  joined: 'green',
  released: 'orange',
  failed: 'red',
}

export const phaseColor = (phase: string): string => COLORS[phase] ?? 'gray'

const PHASES: Record<string, string> = {
  requested: 'The provider is asked for it',
  started: 'It runs there, and its agent has not joined yet',
  joined: 'Its agent has joined',
  released: 'It is given back',
  failed: 'It will not serve, and what is left of it is ended',
}

export const phaseMeaning = (phase: string): string => PHASES[phase] ?? phase

/** Whether a node may still be given back. */
export const releasable = (phase: string): boolean => phase !== 'released' && phase !== 'failed'

/** "1.25", or "–" where nodes cost nothing on record. */
export const costPerHour = (cost: number): string => (cost === 0 ? '–' : shownNumber(Number(cost.toFixed(4))))

export const counted = (count: number, one: string, more = `${one}s`): string => `${count} ${count === 1 ? one : more}`

interface Counts {
  nodes: number
  nodes_coming: number
  provisioning: { nodes_min: number; nodes_max: number }
}

/** "2 of at most 10 nodes, 1 coming". */
export function nodesInWords({ nodes, nodes_coming, provisioning }: Counts): string {
  const least = provisioning.nodes_min > 0 ? `, at least ${provisioning.nodes_min}` : ''
  const coming = nodes_coming > 0 ? `, ${nodes_coming} coming` : ''
  return `${nodes} of at most ${counted(provisioning.nodes_max, 'node')}${least}${coming}`
}

interface Demand {
  slots: number
  count: number
  experiment_id: number
  device?: string | undefined
}

interface Standing {
  demand: Demand
  gangs_coming: number
  hindrance?: string | undefined
  retry_at_us?: number | null | undefined
}

export interface Lack {
  experiment: number
  /** "3 × 2 slots". */
  what: string
  /** What comes, and why nothing more does; empty where it is not known. */
  why: string
}

const HINDRANCES: Record<string, string> = {
  never: 'no number of nodes within the limits could hold it',
  image: 'none of its types of nodes runs that image as the experiment asks',
  limits: "the pool's limits leave no room for more nodes now",
  later: 'such nodes could not be had a moment ago',
}

/** What a pool lacks, in the queue's order. Standings say more than demands, and are not known while the launcher is silent. */
export function lacks(wanted: readonly Demand[], standings: readonly Standing[]): Lack[] {
  if (standings.length > 0) return standings.map((item) => ({ ...lackOf(item.demand), why: whyOf(item) }))
  return wanted.map((demand) => ({ ...lackOf(demand), why: '' }))
}

function lackOf(demand: Demand): Omit<Lack, 'why'> {
  const device = demand.device ? ` (${demand.device})` : ''
  return {
    experiment: demand.experiment_id,
    what: `${demand.count} × ${counted(demand.slots, 'slot')}${device}`,
  }
}

function whyOf({ demand, gangs_coming, hindrance, retry_at_us }: Standing): string {
  const all = gangs_coming >= demand.count
  const come = all
    ? 'nodes are coming'
    : gangs_coming > 0
      ? `nodes for ${gangs_coming} are coming`
      : 'no node is coming'
  const known = all ? undefined : HINDRANCES[hindrance ?? '']
  const because = known === undefined ? '' : gangs_coming > 0 ? `; for the others, ${known}` : `: ${known}`
  const again = retry_at_us == null || all ? '' : `; asked for again from ${moment(retry_at_us)}`
  return `${come}${because}${again}`
}
