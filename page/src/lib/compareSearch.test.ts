import { expect, test } from 'vitest'
import { compareSearch, itemsOf, sideBySide } from './compareSearch'

test('a URL that somebody changed by hand is taken as far as it makes sense', () => {
  expect(compareSearch({ items: '3, 4-1,x,3,0', a: '3', b: 'y', smooth: 1, x: 'time', all: 'no' })).toEqual({
    items: '3,4-1',
    a: '3',
    x: 'time',
  })
  expect(compareSearch({ items: 3, a: 3 })).toEqual({ items: '3', a: '3' })
  expect(itemsOf(Array.from({ length: 30 }, (_, at) => at + 1).join(','))).toHaveLength(20)
})

test('settings side by side, those that differ first', () => {
  expect(
    sideBySide([
      { seed: 1, lr: 0.1 },
      { seed: 1, lr: 0.2, extra: [1] },
    ]),
  ).toEqual([
    { name: 'lr', values: [0.1, 0.2], differs: true },
    { name: 'extra', values: [undefined, [1]], differs: true },
    { name: 'seed', values: [1, 1], differs: false },
  ])
})
