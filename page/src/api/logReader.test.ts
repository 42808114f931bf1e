import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { LATE_POLL_MS, POLL_MS, QUIET_LOOKS_MAX, type Query, readLog } from './logReader'
import type { LogLineView } from './openapi'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

const line = (number: number) => ({ line: number, text: `line ${number}` }) as LogLineView

/** A log that grows; what a reader shows of it, and what it asks. */
function log(live: boolean, search = {}, down = false) {
  const all: LogLineView[] = []
  const shown: number[] = []
  const asked: Query[] = []
  const found = { all, shown, asked, problem: '', down }
  const ask = async (query: Query) => {
    asked.push(query)
    if (found.down) throw new Error('The cluster cannot be reached.')
    const fitting = query.text === undefined ? all : all.filter((one) => one.text.includes(query.text as string))
    const lines = query.tail ? fitting.slice(-query.limit) : fitting.filter((one) => one.line > (query.after ?? 0))
    return { lines, next: undefined }
  }
  const add = (lines: LogLineView[]) => {
    found.problem = ''
    shown.push(...lines.map((one) => one.line))
  }
  const reader = readLog(ask, search, live, add, (error) => {
    found.problem = String(error)
  })
  return { ...found, found, reader }
}

test('lines of a run that has ended are shown, too, if they come after its end', async () => {
  const { all, shown, reader } = log(false)
  await vi.advanceTimersByTimeAsync(0)
  expect(shown).toEqual([])
  all.push(line(1), line(2))
  await vi.advanceTimersByTimeAsync(LATE_POLL_MS)
  expect(shown).toEqual([1, 2])
  all.push(line(3))
  await vi.advanceTimersByTimeAsync(LATE_POLL_MS)
  expect(shown).toEqual([1, 2, 3])
  reader.stop()
  all.push(line(4))
  await vi.advanceTimersByTimeAsync(10 * LATE_POLL_MS)
  expect(shown).toEqual([1, 2, 3])
})

test('the same from the start, and with a search', async () => {
  for (const search of [{ start: true }, { text: '2' }]) {
    const { all, shown, reader } = log(false, search)
    all.push(line(1))
    await vi.advanceTimersByTimeAsync(0)
    all.push(line(2))
    await vi.advanceTimersByTimeAsync(LATE_POLL_MS)
    expect(shown.at(-1)).toBe(2)
    reader.stop()
  }
})

test('a run that goes on is asked more often', async () => {
  const { all, shown, asked, reader } = log(true)
  await vi.advanceTimersByTimeAsync(0)
  all.push(line(1))
  await vi.advanceTimersByTimeAsync(POLL_MS)
  expect(shown).toEqual([1])
  expect(asked.length).toBe(3)
  reader.stop()
})

test('what cannot be asked is told, and asked again', async () => {
  const { all, shown, found, reader } = log(false)
  await vi.advanceTimersByTimeAsync(0)
  found.down = true
  await vi.advanceTimersByTimeAsync(LATE_POLL_MS)
  expect(found.problem).toContain('cannot be reached')
  found.down = false
  all.push(line(1))
  await vi.advanceTimersByTimeAsync(LATE_POLL_MS)
  expect(shown).toEqual([1])
  expect(found.problem).toBe('')
  reader.stop()
})

test('where the first question fails, the newest lines are asked for, and not the whole log', async () => {
  const { all, asked, found, reader } = log(false, {}, true)
  all.push(line(1))
  await vi.advanceTimersByTimeAsync(0)
  found.down = false
  await vi.advanceTimersByTimeAsync(LATE_POLL_MS)
  expect(asked.map((query) => query.tail)).toEqual([true, true])
  reader.stop()
})

test('a run that has ended is not asked for ever, nor is a gateway that refuses', async () => {
  for (const down of [false, true]) {
    const { asked } = log(false, {}, down)
    await vi.advanceTimersByTimeAsync(10 * QUIET_LOOKS_MAX * LATE_POLL_MS)
    expect(asked.length).toBeLessThanOrEqual(QUIET_LOOKS_MAX + 1)
  }
})
