/** A directory that was chosen in the browser, packed into a tar.gz as the command line packs one: the same files are left out. Pure
 * but for reading the files. */

import ignore from 'ignore'
import { shownBytes } from './numbers'

export const IGNORE_FILE = '.tenutoignore'
export const IGNORED = [
  '.git/',
  '__pycache__/',
  '*.pyc',
  '.venv/',
  '.tenuto/',
  'tenuto-runs/',
  '.DS_Store',
  '.ipynb_checkpoints/',
  '.mypy_cache/',
  '.pytest_cache/',
]
export const FILES_MAX = 20_000
/** The gateway's limit: more files than this is a data set, not code. */
const EXPANSION_MAX = 10
/** The gateway takes an archive that unpacks to at most so many times the limit of a packed one. */
const LARGEST_SHOWN = 5
const BLOCK = 512
const NAME_BYTES_MAX = 100

export interface Chosen {
  /** Path inside the directory. */
  path: string
  file: File
}

export interface Sorted {
  kept: Chosen[]
  leftOut: number
  bytes: number
}

/** Which files are packed, in a fixed order. `ignoring`: the text of its ignore file, by the rules of .gitignore; empty where it has
 * none. */
export function sorted(chosen: readonly Chosen[], ignoring: string): Sorted {
  const rules = ignore({ ignorecase: false })
    .add([...IGNORED])
    .add(ignoring)
  const kept = chosen.filter(({ path }) => !rules.ignores(path))
  kept.sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0))
  return { kept, leftOut: chosen.length - kept.length, bytes: kept.reduce((sum, one) => sum + one.file.size, 0) }
}

/** Why these files cannot be submitted, known before they are packed; empty where nothing speaks against them. */
export function refusal({ kept, bytes }: Sorted, bytesMax: number): string {
  if (kept.length > FILES_MAX)
    return `These are ${kept.length.toLocaleString('en')} files; at most ${FILES_MAX.toLocaleString('en')} are taken. Keep data elsewhere, or leave it out in ${IGNORE_FILE}.`
  if (bytes > EXPANSION_MAX * bytesMax) return tooLarge(kept, bytesMax)
  return ''
}

function tooLarge(kept: readonly Chosen[], bytesMax: number): string {
  const largest = [...kept].sort((a, b) => b.file.size - a.file.size).slice(0, LARGEST_SHOWN)
  const named = largest.map(({ path, file }) => `${path} (${shownBytes(file.size)})`).join(', ')
  return `The files pack to more than ${shownBytes(bytesMax)}, the limit of this cluster; largest: ${named}. Keep data elsewhere, or leave files out in ${IGNORE_FILE}.`
}

/** Files that cannot be packed; `message` is one sentence for the user. */
export class NotPacked extends Error {}

/** The archive, gzipped. Throws NotPacked where it becomes larger than `bytesMax`, or where a file cannot be read. */
export async function packed(kept: readonly Chosen[], bytesMax: number): Promise<Blob> {
  const blocks = tar(kept)
  const source = new ReadableStream<Uint8Array<ArrayBuffer>>({
    async pull(controller) {
      const { value, done } = await blocks.next()
      if (done) controller.close()
      else controller.enqueue(value)
    },
  })
  const reader = source.pipeThrough(new CompressionStream('gzip')).getReader()
  const parts: Uint8Array<ArrayBuffer>[] = []
  let bytes = 0
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return new Blob(parts, { type: 'application/gzip' })
    bytes += value.length
    if (bytes > bytesMax) {
      void reader.cancel().catch(() => undefined)
      throw new NotPacked(tooLarge(kept, bytesMax))
    }
    parts.push(value)
  }
}

async function* tar(kept: readonly Chosen[]): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
  for (const { path, file } of kept) {
    const name = new TextEncoder().encode(path)
    if (name.length > NAME_BYTES_MAX || name.length !== path.length) {
      const record = extended('path', path)
      yield header('pax', record.length, 'x')
      yield padded(record)
    }
    yield header(path, file.size, '0')
    yield* contentOf(path, file)
  }
  yield new Uint8Array(2 * BLOCK)
}

async function* contentOf(path: string, file: File): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
  let read = 0
  const changed = new NotPacked(`${path} was changed or cannot be read any more: choose the directory again.`)
  const reader = file.stream().getReader()
  for (;;) {
    const { value, done } = await reader.read().catch(() => {
      throw changed
    })
    if (done) break
    read += value.length
    if (read > file.size) throw changed
    yield value
  }
  if (read !== file.size) throw changed
  if (read % BLOCK !== 0) yield new Uint8Array(BLOCK - (read % BLOCK))
}

/** A record of an extended header (POSIX pax): its length counts itself. */
function extended(name: string, value: string): Uint8Array<ArrayBuffer> {
  const rest = new TextEncoder().encode(` ${name}=${value}\n`)
  let length = rest.length
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length
  const record = new Uint8Array(length)
  record.set(new TextEncoder().encode(String(length)))
  record.set(rest, length - rest.length)
  return record
}

function padded(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(Math.ceil(bytes.length / BLOCK) * BLOCK)
  whole.set(bytes)
  return whole
}

/** One header (POSIX ustar) of a plain file; owner and time say nothing about the code. */
function header(name: string, size: number, kind: '0' | 'x'): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK)
  const put = (text: string, at: number) => block.set(new TextEncoder().encode(text), at)
  block.set(new TextEncoder().encode(name).slice(0, NAME_BYTES_MAX), 0)
  put('0000644\0', 100)
  put('0000000\0', 108)
  put('0000000\0', 116)
  put(`${size.toString(8).padStart(11, '0')}\0`, 124)
  put('00000000000\0', 136)
  put('        ', 148)
  put(kind, 156)
  put('ustar\x0000', 257)
  const sum = block.reduce((total, byte) => total + byte, 0)
  put(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return block
}
