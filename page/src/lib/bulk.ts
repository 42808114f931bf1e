/** Actions on several experiments at once. */

import { actionsOf } from './states'

export const BULK = ['pause', 'resume', 'cancel', 'archive', 'unarchive'] as const
export type BulkAction = (typeof BULK)[number]

interface Item {
  state: string
  archived?: boolean | undefined
}

/** Whether the action means something for the experiment as it is. */
export function takes(item: Item, action: BulkAction): boolean {
  if (action === 'archive') return actionsOf(item.state).length === 0 && item.archived !== true
  if (action === 'unarchive') return item.archived === true
  return actionsOf(item.state).includes(action)
}
