/** The stream of the log for this tab: the one of all tabs of the user, or one of its own where the browser has no shared workers. */

import type { Say, Stream } from '../lib/streamHub'
import { openStream } from './eventStream'
import type { Asked } from './streamWorker'

/** Listens until the answer is called. The worker bears the user's name: a tab in which another user has signed in has another. */
export function listen(user: string, after: number, say: Say): () => void {
  let own: Stream | undefined
  const alone = () => {
    own ??= openStream(after, say)
  }
  if (typeof SharedWorker === 'undefined') {
    alone()
    return () => own?.close()
  }
  const worker = new SharedWorker(new URL('./streamWorker.ts', import.meta.url), {
    type: 'module',
    name: `tenuto events of ${user}`,
  })
  const ask = (asked: Asked) => worker.port.postMessage(asked)
  worker.onerror = alone // its file could not be loaded, as after an update of the gateway
  worker.port.onmessage = ({ data }) => own === undefined && say(data)
  ask({ kind: 'follow', after })
  return () => {
    ask({ kind: 'leave' })
    worker.port.close()
    own?.close()
  }
}
