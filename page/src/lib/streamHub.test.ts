import { expect, test } from 'vitest'
import { missed, type Said, type Say, type Stream, StreamHub } from './streamHub'

interface Opened extends Stream {
  after: number
  say: Say
  position: number
  closed: boolean
}

function hubOf() {
  const opened: Opened[] = []
  const heard: Record<string, Said[]> = { a: [], b: [] }
  const hub = new StreamHub<string>(
    (after, say) => {
      const one: Opened = {
        after,
        say,
        position: after,
        standing: 'open',
        closed: false,
        close: () => {
          one.closed = true
        },
      }
      opened.push(one)
      return one
    },
    (name, said) => heard[name]?.push(said),
  )
  return { hub, opened, heard }
}

const event = (position: number): Said => ({
  kind: 'event',
  event: { type: 'TrialStopped', correlation_id: '1', position },
})

test('many listeners share one stream, and each hears everything', () => {
  const { hub, opened, heard } = hubOf()
  hub.join('a', 5)
  hub.join('b', 5)
  opened[0]?.say(event(6))
  expect(opened).toHaveLength(1)
  expect([heard.a, heard.b]).toEqual([[event(6)], [{ kind: 'open', position: 5 }, event(6)]])
})

test('who joins when more was told than it knows is told the position, and knows that it missed something', () => {
  const { hub, opened, heard } = hubOf()
  hub.join('a', 5)
  const [stream] = opened
  if (stream !== undefined) stream.position = 9
  hub.join('b', 7)
  expect(heard.b).toEqual([{ kind: 'open', position: 9 }])
  expect(heard.b?.map((said) => missed(7, said))).toEqual([true])
  expect([missed(9, { kind: 'open', position: 9 }), missed(9, event(12))]).toEqual([false, false])
})

test('the stream ends with its last listener, and a later one opens another from where it stands', () => {
  const { hub, opened } = hubOf()
  hub.join('a', 5)
  hub.join('b', 5)
  hub.leave('a')
  expect(opened[0]?.closed).toBe(false)
  hub.leave('b')
  expect(opened[0]?.closed).toBe(true)
  hub.join('a', 8)
  expect(opened.map((one) => one.after)).toEqual([5, 8])
})
