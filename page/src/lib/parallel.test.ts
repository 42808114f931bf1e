import { expect, test } from 'vitest'
import { brushesOf, goodness, isChosen, nearestLine, parallelOf } from './parallel'

const trial = (number: number, lr: number, optimizer: string, best_metric: number | string | null) => ({
  id: `1-${number}`,
  number,
  hyperparameters: { lr, net: { optimizer }, seed: 7 },
  best_metric,
})
const TRIALS = [trial(1, 0.001, 'sgd', 0.5), trial(2, 0.1, 'adam', 0.25), trial(3, 0.01, 'adam', 'NaN')]

test('axes are the hyperparameters that differ, and the metric', () => {
  const { axes, lines } = parallelOf(TRIALS, 'loss', ['lr'])
  expect(axes.map((axis) => [axis.name, axis.kind])).toEqual([
    ['lr', 'log'],
    ['net.optimizer', 'category'],
    ['loss', 'number'],
  ])
  expect(lines[1]?.places).toEqual([1, 0, 0])
  expect(lines[2]?.places[2]).toBeUndefined()
})

test('brushes choose the lines that go through all of them', () => {
  const { axes, lines } = parallelOf(TRIALS, 'loss', ['lr'])
  const chosen = (brushes: Record<string, [number, number]>) =>
    lines.filter((line) => isChosen(line, axes, brushes)).map((line) => line.number)
  expect(chosen({})).toEqual([1, 2, 3])
  expect(chosen({ lr: [0.4, 1] })).toEqual([2, 3])
  expect(chosen({ lr: [0.4, 1], loss: [0, 0.5] })).toEqual([2])
  expect(chosen({ other: [0, 0.1] })).toEqual([1, 2, 3])
})

test('the best metric is 1, whichever way is better', () => {
  const { lines } = parallelOf(TRIALS, 'loss', [])
  expect([0.5, 0.25, undefined].map(goodness(lines, true))).toEqual([0, 1, undefined])
  expect(goodness(lines, false)(0.5)).toBe(1)
})

test('a URL that somebody changed by hand is taken as far as it makes sense', () => {
  expect(brushesOf({ lr: [0, 0.5], a: [1, 0], b: 'x', c: [0, 2], d: [0.1] })).toEqual({ lr: [0, 0.5] })
  expect(brushesOf('lr')).toBeUndefined()
})

test('the line nearest to a point', () => {
  const { lines } = parallelOf(TRIALS.slice(0, 2), 'loss', ['lr'])
  expect(nearestLine(lines, 0, 98, [0, 50, 100], 100, 10)?.number).toBe(1)
  expect(nearestLine(lines, 0, 50, [0, 50, 100], 100, 10)).toBeUndefined()
})
