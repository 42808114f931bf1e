/** One stream of the log for many listeners: the tabs of one user. It is open while somebody listens. */

import type { LogEvent } from './outdatedQueries'

export type Heard = Pick<LogEvent, 'type' | 'correlation_id' | 'position'>

/** How a stream stands: it is being opened, tells what happens, comes back by itself, or was refused and is opened again later. */
export type Standing = 'opening' | 'open' | 'broken' | 'refused'

/** What a listener hears. A standing comes with the position up to which all was told. */
export type Said = { kind: Standing; position: number } | { kind: 'event'; event: Heard }

export interface Stream {
  readonly standing: Standing
  /** Of the last event that was told, at first where the stream began. */
  readonly position: number
  close(): void
}

export type Say = (said: Said) => void
export type Open = (after: number, say: Say) => Stream

export class StreamHub<Listener> {
  private readonly listeners = new Set<Listener>()
  private stream: Stream | undefined

  constructor(
    private readonly open: Open,
    private readonly tell: (listener: Listener, said: Said) => void,
  ) {}

  /** Who joins later hears the position of the stream, and knows by it what was told before (`missed`). */
  join(listener: Listener, after: number): void {
    this.listeners.add(listener)
    if (this.stream === undefined) {
      this.stream = this.open(after, (said) => {
        for (const one of this.listeners) this.tell(one, said)
      })
    } else {
      const { standing, position } = this.stream
      this.tell(listener, { kind: standing, position })
    }
  }

  leave(listener: Listener): void {
    this.listeners.delete(listener)
    if (this.listeners.size > 0) return
    this.stream?.close()
    this.stream = undefined
  }
}

/** Whether a listener that knows all up to `known` has not heard something that was told to others: it has to ask anew. */
export function missed(known: number, said: Said): boolean {
  return said.kind !== 'event' && said.position > known
}
