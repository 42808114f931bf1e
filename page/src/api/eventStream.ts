/** The stream of the log. It comes back by itself after a break, and after a refusal is opened again, from the last position that it
 * told. Used by the worker of all tabs, or by the page itself. */

import { FOLLOWED } from '../lib/outdatedQueries'
import { reopenPauseMs } from '../lib/reconnecting'
import type { Heard, Say, Standing, Stream } from '../lib/streamHub'

const CLOSED = 2
/** `EventSource.CLOSED`: it was refused, and a browser tries no more. */

export function openStream(after: number, say: Say): Stream {
  let position = after
  let standing: Standing = 'opening'
  let refusals = 0
  let source: EventSource
  let timer: ReturnType<typeof setTimeout> | undefined
  const stands = (now: Standing) => {
    standing = now
    say({ kind: now, position })
  }
  const seen = (message: MessageEvent<string>) => {
    const { type, correlation_id, position: at } = JSON.parse(message.data) as Heard
    position = at
    say({ kind: 'event', event: { type, correlation_id, position } })
  }
  const open = () => {
    source = new EventSource(`/api/v1/events/stream?after=${position}`, { withCredentials: true })
    for (const type of FOLLOWED) source.addEventListener(type, seen)
    source.onopen = () => {
      refusals = 0
      stands('open')
    }
    source.onerror = () => {
      if (source.readyState !== CLOSED) return stands('broken')
      refusals += 1
      timer = setTimeout(open, reopenPauseMs(refusals, Math.random()))
      stands('refused')
    }
  }
  open()
  return {
    get standing() {
      return standing
    },
    get position() {
      return position
    },
    close: () => {
      clearTimeout(timer)
      source.close()
    },
  }
}
