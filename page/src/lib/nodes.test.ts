import { expect, test } from 'vitest'
import { costPerHour, lacks, nodesInWords, nodesSearch, phaseColor, phaseMeaning, releasable } from './nodes'

const demand = { slots: 2, count: 3, experiment_id: 7 }

test('what an address may hold', () => {
  expect(nodesSearch({ pool: 'far', logs: 'far-1', other: 1 })).toEqual({ pool: 'far', logs: 'far-1' })
  expect(nodesSearch({ pool: '../x', logs: 3 })).toEqual({})
})

test('what a pool lacks is said with what comes and why nothing more does', () => {
  const why = (more: object) => lacks([], [{ demand, gangs_coming: 0, ...more }])[0]?.why
  expect(lacks([demand], [])).toEqual([{ experiment: 7, what: '3 × 2 slots', why: '' }])
  expect(lacks([{ ...demand, slots: 1, device: 'a100' }], [])[0]?.what).toBe('3 × 1 slot (a100)')
  expect(why({ gangs_coming: 3, hindrance: 'limits', retry_at_us: 1 })).toBe('nodes are coming')
  expect(why({ hindrance: 'never' })).toBe('no node is coming: no number of nodes within the limits could hold it')
  expect(why({ gangs_coming: 1, hindrance: 'limits' })).toBe(
    "nodes for 1 are coming; for the others, the pool's limits leave no room for more nodes now",
  )
  expect(why({ hindrance: 'later', retry_at_us: 0 })).toMatch(/^no node is coming: such .* again from 19(69|70)-/)
  expect(why({})).toBe('no node is coming')
})

test('nodes and costs in words', () => {
  const provisioning = { nodes_min: 0, nodes_max: 1 }
  expect(nodesInWords({ nodes: 0, nodes_coming: 0, provisioning })).toBe('0 of at most 1 node')
  expect(nodesInWords({ nodes: 3, nodes_coming: 2, provisioning: { nodes_min: 2, nodes_max: 9 } })).toBe(
    '3 of at most 9 nodes, at least 2, 2 coming',
  )
  expect([costPerHour(0), costPerHour(1.25), costPerHour(0.1 + 0.2)]).toEqual(['–', '1.25', '0.3'])
})

test('phases have colours and meanings, and only some nodes are given back', () => {
  expect(['requested', 'started', 'joined', 'released', 'failed', 'new'].map(phaseColor)).toEqual([
    'gray', 'blue', 'green', 'orange', 'red', 'gray',
  ]) // biome-ignore format: a list of names
  expect(phaseMeaning('started')).toContain('has not joined')
  expect(['joined', 'released', 'failed'].map(releasable)).toEqual([true, false, false])
})
