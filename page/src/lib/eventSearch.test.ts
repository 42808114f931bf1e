import { expect, test } from 'vitest'
import { askedOf, eventSearch, fromInput, gist, localInput, type Recorded, withoutHashes } from './eventSearch'

test('a URL gives filters, and nothing that it should not', () => {
  const search = eventSearch({
    type: 'AgentLost,Nonsense',
    service: 'user:ada',
    experiment: 3,
    since: 5,
    until: -1,
    event: 1.5,
  })
  expect(search).toEqual({ type: 'AgentLost', service: 'user:ada', experiment: 3, since: 5 })
  expect(askedOf(search)).toEqual({ type: 'AgentLost', service: 'user:ada', experiment: 3, since_us: 5 })
  expect(eventSearch({ type: 'x', service: '', experiment: '3' })).toEqual({})
})

test('what an event says is its sentence, or its data on one line', () => {
  const event = { data: { trial_id: '1-1', numbers: { a: 1 }, long: 'x'.repeat(400) } } as unknown as Recorded
  expect(gist({ ...event, sentence: 'It was stopped.' })).toBe('It was stopped.')
  expect(gist(event)).toMatch(/^trial_id 1-1, numbers \{"a":1\}, long x{59}…$/)
})

test('times of inputs are those of the log', () => {
  const us = 1_790_000_040_000_000
  expect(fromInput(localInput(us))).toBe(us)
  expect(localInput(undefined)).toBe('')
  expect(fromInput('')).toBeUndefined()
})

test('hashes of secrets are not shown, and those of code are', () => {
  const hash = 'f'.repeat(64)
  const data = { name: 'ada', token_hash: hash, secret_hash: hash, credential_hash: hash, context_hash: hash }
  const shown = withoutHashes(data)
  expect(Object.entries(shown).filter(([, value]) => value === hash)).toEqual([['context_hash', hash]])
  expect(gist({ data: { token_hash: hash } } as unknown as Recorded)).not.toContain('fff')
})
