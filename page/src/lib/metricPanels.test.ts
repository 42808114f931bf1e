import { expect, test } from 'vitest'
import { panelsOf } from './metricPanels'

const point = (batches: number, metrics: Record<string, unknown>) => ({ batches, time_us: batches * 2e6, metrics })

test('a metric that is trained and validated is one panel with two curves, and comes first', () => {
  const training = [point(1, { lr: 0.1, loss: 3 }), point(2, { lr: 0.1, loss: 2 }), point(2, { loss: 1.5 })]
  const panels = panelsOf(training, [point(2, { accuracy: 0.5, loss: 2.5 })], 'batches', 0)
  expect(panels.map((panel) => [panel.metric, panel.curves.trials])).toEqual([
    ['loss', ['training', 'validation']],
    ['accuracy', ['validation']],
    ['lr', ['training']],
  ])
  expect(panels[0]?.curves).toMatchObject({
    x: [1, 2],
    y: [
      [3, 1.5],
      [null, 2.5],
    ],
  })
})

test('time counts in seconds from the given moment', () => {
  expect(panelsOf([point(3, { loss: 1 })], [], 'time', 1e6)[0]?.curves.x).toEqual([5])
})

test('what cannot be drawn is left out, but a metric that was never finite has a panel', () => {
  expect(panelsOf([point(1, { loss: 'NaN', note: 'text' })], [], 'batches', 0)).toEqual([
    { metric: 'loss', curves: { trials: ['training'], x: [], y: [[]] } },
  ])
})
