import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { parsed, type Tree } from './configText'
import { offered, placeAt } from './settings'

const file = new URL('../../../docs/reference/experiment-config.schema.json', import.meta.url)
const schema = JSON.parse(readFileSync(file, 'utf8')) as Tree

/** The cursor is where the bar is. */
const at = (marked: string) => placeAt(marked.replace('|', ''), marked.indexOf('|'))
const names = (marked: string) => {
  const place = at(marked)
  const { config } = parsed(marked.replace(/^.*\|.*$/m, ''))
  return place === undefined ? undefined : offered(schema, config, place).map((one) => one.name)
}

describe('placeAt', () => {
  test('is a name at the top, or in groups', () => {
    expect(at('na|')).toEqual({ path: [], setting: undefined, from: 0 })
    expect(at('name: a\nresources:\n  # mine\n\n  po|')?.path).toEqual(['resources'])
    expect(at('searcher:\n  name: asha\n  max_length:\n    ba|')?.path).toEqual(['searcher', 'max_length'])
    expect(at('searcher:\n  max_length:\n    batches: 1\n  |')?.path).toEqual(['searcher'])
  })
  test('is a value', () =>
    expect(at('searcher:\n  name: as|')).toEqual({ path: ['searcher'], setting: 'name', from: 18 }))
  test.each(['a: {b|', 'labels:\n  - a|', 'a: 1\n  b|', 'name: a b|', '# wo|', 'a: "b|'])(
    'is nowhere in %j',
    (marked) => expect(at(marked)).toBeUndefined(),
  )
})

describe('offered', () => {
  test('names that are not there yet', () => {
    expect(names('name: a\n|')).toContain('searcher')
    expect(names('name: a\n|')).not.toContain('name')
    expect(names('resources:\n  pool: a\n  |')).toContain('workspace')
  })
  test('settings of the method that is named, and of none other', () => {
    expect(names('searcher:\n  name: asha\n  |')).toContain('divisor')
    expect(names('searcher:\n  name: random\n  |')).not.toContain('divisor')
    expect(names('searcher:\n  name: asha\n  max_length:\n    |')).toEqual(['batches', 'epochs'])
  })
  test('values', () => {
    expect(names('searcher:\n  name: |')).toContain('adaptive_asha')
    expect(names('resources:\n  preemptible: |')).toEqual(['true', 'false'])
    expect(names('resources:\n  priority: |')).toEqual([])
  })
  test('nothing in what the schema does not know', () => expect(names('nothing:\n  |')).toEqual([]))
  test('the kind and the default', () => {
    const place = at('resources:\n  |')
    const priority = place && offered(schema, {}, place).find((one) => one.name === 'priority')
    expect(priority?.detail).toBe('integer = 42')
  })
})
