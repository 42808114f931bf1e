import { expect, test } from 'vitest'
import { flat } from './flatNames'

test('groups become names with dots; lists and empty groups stay whole', () => {
  expect(flat({ lr: 0.1, net: { layers: [1, 2], dropout: { rate: 0 }, extra: {} } })).toEqual({
    lr: 0.1,
    'net.layers': [1, 2],
    'net.dropout.rate': 0,
    'net.extra': {},
  })
})
