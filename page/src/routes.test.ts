import { expect, test, vi } from 'vitest'

vi.mock('./Shell', () => ({ Shell: () => null }))

const { router } = await import('./routes')

/** What the page at an address reads of it. */
function readOf(path: string, search: Record<string, unknown>): unknown {
  const read = router.matchRoutes(path, search).at(-1)?.search ?? {}
  return Object.fromEntries(Object.entries(read).filter(([, value]) => value !== undefined))
}

test.each([
  ['/experiments/1', { tab: 'rungs', smooth: 'x', zoom: 7, trial: 5, unknown: 1 }, { tab: 'rungs' }],
  ['/trials/1-1', { tab: 'none', zoom: { a: 1 }, run: '1-1.2' }, { run: '1-1.2' }],
  ['/', { limit: 'many', state: 'odd', text: 12 }, { text: '12' }],
  ['/compare', { items: {}, smooth: [] }, {}],
  ['/events', { type: 7, event: -1, since: 'noon' }, {}],
  ['/cluster', { at: '7', from: {} }, {}],
  ['/queue', { at: [1] }, {}],
  ['/nodes', { pool: 1 }, {}],
  ['/new', { config: 'x' }, {}],
])('no page reads from its address what is of the wrong kind: %s', (path, search, known) => {
  expect(readOf(path, search)).toEqual(known)
})
