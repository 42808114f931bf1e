import { expect, test } from 'vitest'
import type { RungsView } from '../api/openapi'
import { promotions, rungsOf } from './rungs'

const rung = (bracket: number | null, place: number, ...trials: string[]): RungsView['rungs'][number] => ({
  key: `${bracket ?? ''}/${place}`,
  rung: place,
  bracket,
  length: 4 ** place,
  unit: 'epochs',
  cut_off: null,
  trials: trials.map((trial_id) => ({ trial_id, metric: null, fate: 'waits', sentence: '', position: 1 })),
})

test('what is null in the answer is drawn as nothing', () => {
  const [found] = rungsOf({ rungs: [rung(null, 0, '1-1')] })
  expect(found).toMatchObject({ bracket: undefined, cutOff: undefined })
  expect(found?.dots).toMatchObject([{ trial: '1-1', at: '/0', metric: undefined }])
})

test('promotions join the dots of one trial', () => {
  const rungs = rungsOf({ rungs: [rung(0, 0, '1-1', '1-2'), rung(0, 1, '1-1'), rung(1, 0, '1-3'), rung(1, 1, '1-3')] })
  expect(promotions(rungs).map(([from, to]) => [from.trial, from.at, to.at])).toEqual([
    ['1-1', '0/0', '0/1'],
    ['1-3', '1/0', '1/1'],
  ])
})
