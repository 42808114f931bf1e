import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Said } from '../lib/streamHub'
import { openStream } from './eventStream'

/** As much of a browser's EventSource as the stream uses. */
class Source extends EventTarget {
  static made: Source[] = []
  readyState = 0
  onopen = () => {}
  onerror = () => {}
  constructor(readonly address: string) {
    super()
    Source.made.push(this)
  }
  close() {
    this.readyState = 2
  }
  refuse() {
    this.readyState = 2
    this.onerror()
  }
  tell(position: number) {
    const data = JSON.stringify({ type: 'TrialPaused', correlation_id: '1', position, data: {} })
    this.dispatchEvent(new MessageEvent('TrialPaused', { data }))
  }
}

beforeEach(() => {
  Source.made = []
  vi.useFakeTimers()
  vi.stubGlobal('EventSource', Source)
  vi.spyOn(Math, 'random').mockReturnValue(0.99)
})
afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
  vi.restoreAllMocks()
})

const last = () => Source.made.at(-1) as Source

test('a refused stream is opened again from the last position, later each time, and soon again once it was open', () => {
  const said: Said[] = []
  openStream(7, (one) => said.push(one))
  expect(last().address).toContain('after=7')
  last().onopen()
  last().tell(12)
  last().refuse()
  expect(said.map((one) => one.kind)).toEqual(['open', 'event', 'refused'])
  vi.advanceTimersByTime(1_000)
  expect(Source.made).toHaveLength(2)
  expect(last().address).toContain('after=12')
  last().refuse()
  vi.advanceTimersByTime(1_900)
  expect(Source.made).toHaveLength(2)
  vi.advanceTimersByTime(100)
  expect(Source.made).toHaveLength(3)
  last().onopen()
  last().refuse()
  vi.advanceTimersByTime(1_000)
  expect(Source.made).toHaveLength(4)
})

test('a break is left to the browser, and a closed stream comes back no more', () => {
  const said: Said[] = []
  const stream = openStream(1, (one) => said.push(one))
  last().onerror()
  expect(said).toEqual([{ kind: 'broken', position: 1 }])
  last().refuse()
  stream.close()
  vi.advanceTimersByTime(120_000)
  expect(Source.made).toHaveLength(1)
})
