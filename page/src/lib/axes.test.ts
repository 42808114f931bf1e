import { expect, test } from 'vitest'
import { axisOf, logNames, placeOn, ticksOf, valueAt } from './axes'

test('numbers stand between the least and the largest, on a logarithmic axis by their exponents', () => {
  const plain = axisOf('units', [10, 30, undefined, 20])
  expect(plain && [placeOn(plain, 10), placeOn(plain, 20), placeOn(plain, 30)]).toEqual([0, 0.5, 1])
  const log = axisOf('lr', [0.001, 0.1], true)
  expect(log && placeOn(log, 0.01)).toBeCloseTo(0.5)
  expect(log && valueAt(log, 0.5)).toBe('0.01')
  expect(log && placeOn(log, 0)).toBeUndefined()
})

test('what is no number is a category', () => {
  const axis = axisOf('optimizer', ['sgd', 'adam', 'sgd'])
  expect(axis && ticksOf(axis)).toEqual([
    [0, 'adam'],
    [1, 'sgd'],
  ])
  expect(axis && placeOn(axis, 'lion')).toBeUndefined()
  expect(axisOf('mixed', [1, 'auto'])?.kind).toBe('category')
})

test('one value stands in the middle; none, and names of trials, make no axis', () => {
  const one = axisOf('seed', [3, 3])
  expect(one && [placeOn(one, 3), ticksOf(one)]).toEqual([0.5, [[0.5, '3']]])
  expect(axisOf('none', [undefined, null])).toBeUndefined()
  expect(
    axisOf(
      'name',
      Array.from({ length: 41 }, (_, at) => `n${at}`),
    ),
  ).toBeUndefined()
})

test('which hyperparameters are logarithmic', () => {
  const space = { lr: { type: 'log' }, net: { decay: { type: 'log' }, units: { type: 'int' } }, batch: 3 }
  expect(logNames(space)).toEqual(['lr', 'net.decay'])
  expect(logNames(null)).toEqual([])
})

test('whole numbers have whole ticks, at their places', () => {
  const axis = axisOf('channels', [13, 31, 20])
  expect(axis && ticksOf(axis)).toEqual([
    [0, '13'],
    [5 / 18, '18'],
    [0.5, '22'],
    [14 / 18, '27'],
    [1, '31'],
  ])
  const two = axisOf('layers', [1, 2])
  expect(two && ticksOf(two).map(([, label]) => label)).toEqual(['1', '2'])
})
