import { expect, test } from 'vitest'
import { differences, overrides, parsed, placed, withSetting, written } from './configText'

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

test('what YAML 1.1 takes for something else is told by line, as the gateway does', () => {
  const told = differences(
    "a: off\nb: 010\nc: 'off'\nd: 0o10\non: [1:30, 2024-01-01, 1_000]\ne: 1e3\nf: 10\ng: y\nh:\n",
  )
  expect(told.map((one) => one.slice(0, one.indexOf(' here')))).toEqual([
    'line 1: off is text',
    'line 2: 010 is the number 10',
    'line 5: on is text',
    'line 5: 1:30 is text',
    'line 5: 2024-01-01 is text',
    'line 5: 1_000 is text',
  ])
  expect(told[0]).toContain('YAML 1.1 takes it for true or false. Write that in full if you mean it')
  expect(differences('- no\n'.repeat(1000))).toHaveLength(20)
  expect(differences('a: [')).toEqual([])
})

test('of a configuration as it is written out nothing is told', () => {
  const config = { hyperparameters: { a: 'off', b: '010', c: '1:30', d: '2024-01-01', e: 'yes', f: 1e-5, g: true } }
  expect(differences(written(config))).toEqual([])
  expect(parsed(written(config)).config).toEqual(config)
})
