import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { type Chosen, FILES_MAX, IGNORED, NotPacked, packed, patternsOf, refusal, sorted } from './packing'

const chosen = (path: string, content = path): Chosen => ({ path, file: new File([content], path) })
const names = (paths: string[], ignoring = '') =>
  sorted(
    paths.map((path) => chosen(path)),
    ignoring,
  ).kept.map((one) => one.path)

test('the same is left out as by the command line', () => {
  const source = readFileSync(new URL('../../../src/tenuto/client/packing.py', import.meta.url), 'utf8')
  const tuple = /\nIGNORED = \(([^)]*)\)/.exec(source)?.[1] ?? ''
  expect([...tuple.matchAll(/"([^"]+)"/g)].map((found) => found[1])).toEqual(IGNORED)
  expect(source).toContain(`FILES_MAX = ${FILES_MAX.toLocaleString('en').replace(',', '_')}`)
  expect(names(['train.py', '.git/config', 'a/__pycache__/b.pyc', 'b.pyc', '.DS_Store', 'a/net.py'])).toEqual([
    'a/net.py',
    'train.py',
  ])
})

test('patterns are as in the command line', () => {
  const ignoring = '# a comment\n*.ckpt\ndata\nruns/\n/top/*\n'
  const paths = ['model_def.py', 'x.ckpt', 'sub/y.ckpt', 'data/a', 'sub/data', 'runs', 'nets/cnn.py', 'top/a', 'sub/top/a', 'sub/runs/b'] // biome-ignore format: a list of names
  expect(names(paths, ignoring)).toEqual(['model_def.py', 'nets/cnn.py', 'runs', 'sub/top/a'])
  expect(patternsOf(ignoring)).toHaveLength(4)
})

test.each([
  ['a.[ch]', 'a.c', true],
  ['a.[!ch]', 'a.c', false],
  ['a?', 'ab', true],
  ['a?', 'a', false],
  ['[a', '[a', true],
  ['a+b(1)', 'a+b(1)', true],
  ['x/*/z', 'x/y/y/z', true],
  ['[z-a]', 'b', false],
  ['/x', 'x', true],
])('%s of %s', (pattern, path, expected) => expect(names([path], pattern)).toEqual(expected ? [] : [path]))

test('tar reads the archive', async () => {
  const long = `${'folder/'.repeat(20)}file.py`
  const content = 'x'.repeat(1000)
  const files = [
    chosen('a.py', 'print(1)\n'),
    chosen(long, content),
    chosen('ümlaut.py', ''),
    chosen('b', 'y'.repeat(512)),
  ]
  const input = Buffer.from(await (await packed(files, 1e6)).arrayBuffer())
  const listed = execFileSync('tar', ['-tzf', '-', '--quoting-style=literal'], { input, env: { LC_ALL: 'C.UTF-8', PATH: process.env.PATH } }) // biome-ignore format: one command
  expect(listed.toString().trim().split('\n')).toEqual(['a.py', long, 'ümlaut.py', 'b'])
  expect(execFileSync('tar', ['-xzOf', '-', long], { input }).toString()).toBe(content)
  expect(execFileSync('tar', ['-xzOf', '-', 'a.py'], { input }).toString()).toBe('print(1)\n')
})

test('what is too large is refused with the largest files', async () => {
  const noise = Array.from({ length: 40_000 }, (_, index) => Math.sin(index)).join('')
  const files = [chosen('small.py'), chosen('data.bin', noise)]
  await expect(packed(files, 10_000)).rejects.toThrow(NotPacked)
  await expect(packed(files, 10_000)).rejects.toThrow(/10\.0 KB.*largest: data\.bin \(\d/)
  expect(refusal(sorted(files, ''), 10_000)).toContain('data.bin')
  expect(refusal(sorted(files, 'data.bin'), 10_000)).toBe('')
})

test('too many files are refused before one is read', () => {
  const one = chosen('a').file
  const many = Array.from({ length: FILES_MAX + 1 }, (_, index) => ({ path: `${index}`, file: one }))
  expect(refusal(sorted(many, ''), 1e9)).toContain('20,001 files')
})
