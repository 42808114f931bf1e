import { expect, test } from 'vitest'
import { chosenOf, configsOf, droppedOf } from './chosenFiles'

const at = (path: string): File =>
  Object.assign(new File(['x'], path.split('/').at(-1) ?? ''), { webkitRelativePath: path })

/** A tree as browsers give it: content in parts of two. */
function entry(name: string, tree: string | Record<string, unknown>): FileSystemEntry {
  if (typeof tree === 'string')
    return { name, isFile: true, isDirectory: false, file: (found: (file: File) => void) => found(new File([tree], name)) } as never // biome-ignore format: one object
  const inner = Object.entries(tree).map(([key, value]) => entry(key, value as string))
  const createReader = () => {
    const left = [...inner]
    return { readEntries: (found: (part: FileSystemEntry[]) => void) => found(left.splice(0, 2)) }
  }
  return { name, isFile: false, isDirectory: true, createReader } as never
}
const paths = async (entries: FileSystemEntry[]) => (await droppedOf(entries)).map((one) => one.path).sort()
const MODEL = {
  'a.py': 'a',
  'b.py': 'b',
  'c.py': 'c',
  nets: { 'd.py': 'd', deep: { 'e.py': 'e' } },
  '.git': { x: 'y' },
}

test('paths are those inside the chosen directory', () =>
  expect(chosenOf([at('model/a.py'), at('model/nets/b.py'), at('')]).map((one) => one.path)).toEqual([
    'a.py',
    'nets/b.py',
    '',
  ]))

test('a dropped directory is the model directory, several things are what is in it', async () => {
  const inner = ['a.py', 'b.py', 'c.py', 'nets/d.py', 'nets/deep/e.py']
  expect(await paths([entry('model', MODEL)])).toEqual(inner)
  expect(await paths([entry('nets', MODEL.nets), entry('a.py', 'a')])).toEqual(['a.py', 'nets/d.py', 'nets/deep/e.py'])
  expect(await paths([entry('a.py', 'a')])).toEqual(['a.py'])
})

test('the likeliest configuration comes first', () => {
  const files = ['.ci.yml', 'a.yaml', 'nets/config.yaml', 'config.yml', 'train.py', 'asha.yaml'].map((path) =>
    at(`m/${path}`),
  )
  expect(configsOf(chosenOf(files)).map((one) => one.path)).toEqual(['config.yml', 'a.yaml', 'asha.yaml', '.ci.yml'])
})
