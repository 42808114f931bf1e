/** What may be done with an agent, by what its slots do. */

interface Known {
  slots: { enabled: boolean; allocation_id: string | null }[]
}

export interface SlotsChange {
  label: 'Enable' | 'Drain' | 'Disable'
  verb: 'enable' | 'disable'
  drain: boolean
  meaning: string
}

const ENABLE: SlotsChange = { label: 'Enable', verb: 'enable', drain: false, meaning: 'Trials are placed there again' }
const DRAIN: SlotsChange = {
  label: 'Drain',
  verb: 'disable',
  drain: true,
  meaning: 'Nothing new is placed there; what runs there goes on to its end',
}
const DISABLE: SlotsChange = {
  label: 'Disable',
  verb: 'disable',
  drain: false,
  meaning: 'Nothing new is placed there; what runs there saves a checkpoint and leaves',
}

export function changesOf(agent: Known): SlotsChange[] {
  const found: SlotsChange[] = []
  if (agent.slots.some((slot) => !slot.enabled)) found.push(ENABLE)
  const open = agent.slots.length === 0 || agent.slots.some((slot) => slot.enabled)
  const busy = agent.slots.some((slot) => slot.allocation_id !== null)
  if (open) found.push(DRAIN)
  if (open || busy) found.push(DISABLE)
  return found
}

/** Who held a slot at an earlier moment; without an experiment where it may not be known, or nobody did. */
export function slotThen(
  slot: { enabled: boolean; allocation_id?: string | null | undefined },
  lost: boolean,
): { text: string; experiment: number | undefined } {
  const found = /^([0-9]+)-([0-9]+)-[0-9]+$/.exec(slot.allocation_id ?? '')
  const closed = slot.enabled ? '' : ' (disabled)'
  if (found !== null) return { text: `trial ${found[1]}-${found[2]}${closed}`, experiment: Number(found[1]) }
  if (slot.allocation_id != null) return { text: `taken${closed}`, experiment: undefined }
  return { text: lost ? 'gone' : slot.enabled ? 'free' : 'disabled', experiment: undefined }
}
