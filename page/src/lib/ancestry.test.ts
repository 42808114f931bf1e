import { expect, test } from 'vitest'
import { ANCESTORS_MAX, ancestryOf } from './ancestry'

test('the chain of parents, the oldest first', async () => {
  const known: Record<number, { relation?: string; parent_id?: string }> = {
    1: {},
    4: { relation: 'fork', parent_id: '1' },
    7: { relation: 'reproduction', parent_id: '4-2' },
  }
  const ask = async (id: number) => known[id] ?? {}
  expect(await ancestryOf({ relation: 'continuation', parent_id: '7' }, ask)).toEqual([
    { id: '1', relation: 'fork' },
    { id: '4-2', relation: 'reproduction' },
    { id: '7', relation: 'continuation' },
  ])
  expect(await ancestryOf({}, ask)).toEqual([])
})

test('it ends where a parent is hidden, and never goes on for ever', async () => {
  const hidden = async () => Promise.reject(new Error('no such experiment'))
  expect(await ancestryOf({ relation: 'fork', parent_id: '3' }, hidden)).toEqual([{ id: '3', relation: 'fork' }])
  const long = async (id: number) => ({ relation: 'fork', parent_id: String(id + 1) })
  expect(await ancestryOf({ relation: 'fork', parent_id: '1' }, long)).toHaveLength(ANCESTORS_MAX)
  const circle = async () => ({ relation: 'fork', parent_id: '3' })
  expect(await ancestryOf({ relation: 'fork', parent_id: '3' }, circle)).toHaveLength(1)
})
