import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { type Chosen, FILES_MAX, IGNORED, NotPacked, packed, refusal, sorted } from './packing'

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
})

// The same table as that of the command line's tests: (patterns, left out, kept).
test.each([
  [['data/*', '!data/keep.csv'], ['data/big.bin', 'data/deep/x'], ['data/keep.csv']],
  [['data/', '!data/keep.csv'], ['data/keep.csv'], ['other']],
  [
    ['*.txt', '!a.txt', 'deep/*.txt'],
    ['b.txt', 'deep/a.txt'],
    ['a.txt', 'c/a.txt'],
  ],
  [['**/logs', 'a/**/z'], ['logs/x', 'b/logs/x', 'a/z', 'a/b/c/z'], ['z']],
  [['a/*.py'], ['a/x.py'], ['a/b/x.py']],
  [['runs/'], ['deep/runs/1'], ['runs']],
  [
    ['\\#x', '\\!y', 'z[0-9]', 'w?', 'e '],
    ['#x', '!y', 'z1', 'w1', 'e'],
    ['zz', 'w', 'e x'],
  ],
  [['*.CKPT'], [], ['a.ckpt']],
])('%j leaves out %j', (patterns, leftOut, kept) => {
  expect(names([...leftOut, ...kept], patterns.join('\n'))).toEqual([...kept].sort())
})

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
