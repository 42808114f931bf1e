/** Files that a person chose or dropped, with their paths inside the model directory. */

import { type Chosen, FILES_MAX, IGNORED, NotPacked } from './packing'

const WALKED_MAX = 5 * FILES_MAX
/** Of what was dropped; an ignore file may leave much of it out, but not without end. */
const FOLDERS_LEFT_OUT = IGNORED.filter((pattern) => pattern.endsWith('/')).map((pattern) => pattern.slice(0, -1))
const CONFIG = /\.ya?ml$/
const CONFIG_BYTES_MAX = 256 * 1024
/** As the gateway takes. */

/** Of an input: with `webkitdirectory` each path begins with the name of the directory. */
export function chosenOf(files: Iterable<File>): Chosen[] {
  return [...files].map((file) => {
    const path = file.webkitRelativePath.split('/').slice(1).join('/')
    return { path: path || file.name, file }
  })
}

/** Of what was dropped: one directory is the model directory, several things are what is in it. */
export async function droppedOf(items: readonly FileSystemEntry[]): Promise<Chosen[]> {
  const [only] = items
  const top = items.length === 1 && only?.isDirectory ? await below(only as FileSystemDirectoryEntry) : [...items]
  const found: Chosen[] = []
  const waiting = top.map((entry) => ({ entry, path: entry.name }))
  for (let item = waiting.pop(); item !== undefined; item = waiting.pop()) {
    const { entry, path } = item
    if (entry.isFile) found.push({ path, file: await fileOf(entry as FileSystemFileEntry) })
    else if (!FOLDERS_LEFT_OUT.includes(entry.name))
      for (const inner of await below(entry as FileSystemDirectoryEntry))
        waiting.push({ entry: inner, path: `${path}/${inner.name}` })
    if (found.length > WALKED_MAX)
      throw new NotPacked(
        `There are more than ${WALKED_MAX.toLocaleString('en')} files: choose the directory of the code.`,
      )
  }
  return found
}

/** A browser tells the content of a directory in parts, the last of which is empty. */
async function below(directory: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = directory.createReader()
  const found: FileSystemEntry[] = []
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject))
    if (part.length === 0) return found
    found.push(...part)
  }
}

const fileOf = (entry: FileSystemFileEntry) => new Promise<File>((resolve, reject) => entry.file(resolve, reject))

/** YAML files at the top, the likeliest configuration first. */
export function configsOf(chosen: readonly Chosen[]): Chosen[] {
  const found = chosen.filter(
    ({ path, file }) => !path.includes('/') && CONFIG.test(path) && file.size <= CONFIG_BYTES_MAX,
  )
  const rank = ({ path }: Chosen) => (path.startsWith('config.') ? 0 : path.startsWith('.') ? 2 : 1)
  return found.sort((a, b) => rank(a) - rank(b) || (a.path < b.path ? -1 : 1))
}
