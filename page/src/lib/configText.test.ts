import { expect, test } from 'vitest'
import { overrides, parsed, placed, withSetting, written } from './configText'

const CONFIG = {
  name: 'digits',
  description: null,
  searcher: { name: 'asha', max_trials: 8, max_length: { batches: 100, epochs: null }, divisor: 4 },
  hyperparameters: { lr: { type: 'log', minval: -3, maxval: -1, base: 10 }, units: { type: 'const', val: 8 } },
  labels: ['a', 'b'],
}

test('a configuration that nobody changed has no overrides', () => {
  const text = written(CONFIG)
  expect(text).not.toContain('null')
  expect(overrides(CONFIG, parsed(text).config)).toEqual({})
})

test('only what was changed is an override; what was taken out is its default', () => {
  const text = written(CONFIG).replace('max_trials: 8', 'max_trials: 16').replace('  divisor: 4\n', '')
  expect(overrides(CONFIG, parsed(text).config)).toEqual({ searcher: { max_trials: 16, divisor: null } })
})

test('a range, a length and a list are replaced whole', () => {
  const after = {
    ...CONFIG,
    searcher: { ...CONFIG.searcher, max_length: { epochs: 3 } },
    hyperparameters: { ...CONFIG.hyperparameters, lr: { type: 'log', minval: -4, maxval: -1, base: 10 } },
    labels: ['a'],
  }
  expect(overrides(CONFIG, after)).toEqual({
    searcher: { max_length: { epochs: 3 } },
    hyperparameters: { lr: { type: 'log', minval: -4, maxval: -1, base: 10 } },
    labels: ['a'],
  })
})

test('errors of YAML have places', () => {
  const [problem] = parsed('name: [1\nother: 2').problems
  expect(problem?.message).toBeTruthy()
  expect(parsed('- 1').problems).toHaveLength(1)
})

test("the gateway's errors stand at their settings, or at the group that lacks one", () => {
  const text = 'name: x\nsearcher:\n  name: asha\n  max_trials: 0\nlist:\n  - a: 1\n'
  const at = (path: string) => {
    const [mark] = placed(text, [{ path, message: 'wrong' }])
    return mark && text.slice(mark.from, mark.to)
  }
  expect(at('searcher.max_trials')).toBe('max_trials: 0')
  expect(at('searcher.metric')).toBe('searcher')
  expect(at('list.0.a')).toBe('a: 1')
  expect(at('')).toBe('name: x\n')
  expect(placed(text, [{ path: 'name', message: 'wrong' }])[0]?.message).toBe('name: wrong')
})

test('a setting is changed in the text, and nothing else', () => {
  const text = '# mine\nname: a # short\nsearcher: { name: asha }\n'
  const set = withSetting(text, ['resources', 'workspace'], 'vision')
  expect(set).toBe('# mine\nname: a # short\nsearcher: { name: asha }\nresources:\n  workspace: vision\n')
  expect(withSetting(set, ['resources', 'workspace'], undefined)).toBe(text)
  expect(withSetting(text, ['template'], undefined)).toBe(text)
  expect(withSetting('resources:\n', ['resources', 'workspace'], 'vision')).toBe('resources:\n  workspace: vision\n')
  expect(withSetting('a: [', ['template'], 'fast')).toBe('a: [')
  expect(withSetting('- a\n', ['template'], 'fast')).toBe('- a\n')
  expect(withSetting('', ['template'], 'fast')).toBe('template: fast\n')
  expect(withSetting('resources: {pool: a}\n', ['resources', 'workspace'], undefined)).toBe('resources: {pool: a}\n')
})

test('a setting below what is no group stays as it is', () => {
  expect(withSetting('resources: 3\n', ['resources', 'workspace'], 'vision')).toBe('resources: 3\n')
})

test('a seed of any size is shown, read and compared with all its digits', () => {
  const before = { reproducibility: { experiment_seed: 9223372036854775807n }, searcher: { max_trials: 4 } }
  const text = written(before)
  expect(text).toContain('experiment_seed: 9223372036854775807\n')
  expect(parsed(text).config).toEqual(before)
  expect(overrides(before, parsed(text).config)).toEqual({})
  const other = parsed(text.replace('807', '806')).config
  expect(overrides(before, other)).toEqual({ reproducibility: { experiment_seed: 9223372036854775806n } })
})
