import { expect, test } from 'vitest'
import { FOLLOWED, outdated } from './live'

test('a validation makes the curves, trials and lists of its experiment out of date, and nothing of another', () => {
  expect(outdated({ type: 'ValidationReported', correlation_id: '7' })).toEqual([
    ['experiment', 7],
    ['trials', 7],
    ['validations', 7],
    ['experiments'],
  ])
})

test('an agent is no experiment', () => {
  expect(outdated({ type: 'AgentJoined', correlation_id: 'node-1' })).toEqual([['agents']])
})

test('each followed type makes something out of date', () => {
  for (const type of FOLLOWED) expect(outdated({ type, correlation_id: '1' })).not.toEqual([])
})
