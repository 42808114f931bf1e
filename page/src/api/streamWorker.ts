/** Runs once for all tabs of one user in this browser: a browser opens six connections to a gateway, and each stream takes one for
 * good, so that a stream for each tab would leave none for the questions of the seventh. */

import { type Say, StreamHub } from '../lib/streamHub'
import { openStream } from './eventStream'

/** What a tab asks of the worker. */
export type Asked = { kind: 'follow'; after: number } | { kind: 'leave' }

interface Scope {
  onconnect: ((event: MessageEvent) => void) | null
}

const hub = new StreamHub<MessagePort>(openStream, (port, said: Parameters<Say>[0]) => port.postMessage(said))
const scope = globalThis as unknown as Scope

scope.onconnect = ({ ports: [port] }) => {
  if (port === undefined) return
  port.onmessage = ({ data }: MessageEvent<Asked>) => {
    if (data.kind === 'follow') hub.join(port, data.after)
    else hub.leave(port)
  }
}
