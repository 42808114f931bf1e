/** A configuration as YAML that people edit: what they changed, and where in the text an error is. */

import { isMap, isNode, isScalar, isSeq, parseDocument, type Scalar, stringify, visit } from 'yaml'

const DIFFERENCES_MAX = 20
/** Nobody reads more. */

export type Tree = Record<string, unknown>

/** An error and its place in the text, as offsets. */
export interface Marked {
  from: number
  to: number
  message: string
}

export interface Problem {
  path: string
  message: string
}

/** Settings without those that are empty: what a person would write. Text that YAML 1.1 takes for something else is quoted. */
export function written(config: Tree): string {
  return stringify(withoutNulls(config), { lineWidth: 110, compat: 'yaml-1.1' })
}

function withoutNulls(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, one]) => one !== null)
      .map(([name, one]) => [name, withoutNulls(one)]),
  )
}

/** Whole numbers as answers of the gateway have them: bigint only where a number would lose digits. */
function withNumbers(value: unknown): unknown {
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : value
  if (Array.isArray(value)) return value.map(withNumbers)
  if (!isTree(value)) return value
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, withNumbers(one)]))
}

/** The configuration that the text holds, or what is wrong with the text as YAML. */
export function parsed(text: string): { config: Tree; problems: Marked[] } {
  const document = parseDocument(text, { intAsBigInt: true })
  const problems = document.errors.map(({ pos: [from, to], message }) => ({
    from,
    to,
    message: message.split('\n')[0] ?? message,
  }))
  const config = problems.length === 0 ? withNumbers(document.toJS({ maxAliasCount: 100 })) : {}
  if (problems.length === 0 && !isTree(config))
    return {
      config: {},
      problems: [{ from: 0, to: text.length, message: 'A configuration is a mapping of names to settings.' }],
    }
  return { config: isTree(config) ? config : {}, problems }
}

/** Where the text means something else in YAML 1.1, as the gateway tells of a text that it is sent (schemas/config/yaml_text.py). */
export function differences(text: string): string[] {
  const here = parseDocument(text)
  if (here.errors.length > 0) return []
  const elsewhere = new Map(plain(parseDocument(text, { version: '1.1' })).map((one) => [one.range?.[0], one.value]))
  const found: string[] = []
  for (const { source = '', value, range } of plain(here)) {
    const other = range && elsewhere.get(range[0])
    const word = meant(other)
    if (word === undefined || /^[yn]$/i.test(source)) continue // which only some readers take for true or false
    const differs = typeof value === 'string' || (typeof value === 'number' && value !== other && word === ANOTHER)
    if (!differs) continue
    const line = text.slice(0, range?.[0]).split('\n').length
    const read = typeof value === 'string' ? 'text' : `the number ${value}`
    found.push(
      `line ${line}: ${source} is ${read} here (YAML 1.2); YAML 1.1 takes it for ${word}. Write that in full if you mean it, or put it into quotation marks.`,
    )
    if (found.length === DIFFERENCES_MAX) break
  }
  return found
}

const ANOTHER = 'another number'

function meant(value: unknown): string | undefined {
  if (typeof value === 'boolean') return 'true or false'
  if (typeof value === 'number') return ANOTHER
  return value instanceof Date ? 'a date' : undefined
}

function plain(document: ReturnType<typeof parseDocument>): Scalar[] {
  const found: Scalar[] = []
  visit(document, { Scalar: (_, node) => void (node.type === 'PLAIN' && node.tag === undefined && found.push(node)) })
  return found
}

const isTree = (value: unknown): value is Tree => typeof value === 'object' && value !== null && !Array.isArray(value)

/** A value of its own, not a group: the gateway replaces a hyperparameter's range and a length whole. */
function isWhole(value: Tree): boolean {
  const names = Object.keys(value)
  return (
    typeof value.type === 'string' ||
    (names.length > 0 && names.every((name) => name === 'batches' || name === 'epochs'))
  )
}

/** Only what differs from `before`, in the shape of a configuration. A setting that was taken out becomes null: its default. */
export function overrides(before: Tree, after: Tree): Tree {
  const changed: Tree = {}
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [old, now] = [before[name], after[name]]
    if (now === undefined) {
      if (old !== null && old !== undefined) changed[name] = null
    } else if (isTree(old) && isTree(now) && !isWhole(old) && !isWhole(now)) {
      const inner = overrides(old, now)
      if (Object.keys(inner).length > 0) changed[name] = inner
    } else if (!same(old, now)) changed[name] = now
  }
  return changed
}

function same(a: unknown, b: unknown): boolean {
  if (a === b) return true
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((one, index) => same(one, b[index]))
  if (!isTree(a) || !isTree(b)) return false
  // What the configuration on record says as null is not written.
  const names = new Set([...Object.keys(a), ...Object.keys(b)])
  return [...names].every((name) => same(a[name] ?? null, b[name] ?? null))
}

/** The text with one setting changed, or taken out for undefined; all else, comments too, stays. Text that is no YAML stays as it is. */
export function withSetting(text: string, path: readonly string[], value: string | undefined): string {
  const document = parseDocument(text)
  if (document.errors.length > 0 || (document.contents !== null && !isMap(document.contents))) return text
  const groups = path.slice(0, -1).map((_, index) => document.getIn(path.slice(0, index + 1)))
  if (groups.some((one) => one !== undefined && one !== null && !isMap(one))) return text
  groups.forEach((one, index) => {
    if (one === null) document.deleteIn(path.slice(0, index + 1)) // "resources:" with nothing below
  })
  if (value !== undefined) document.setIn(path, value)
  else if (document.hasIn(path)) document.deleteIn(path)
  else return text
  const group = path.slice(0, -1)
  const left = group.length > 0 ? document.getIn(group) : undefined
  if (isMap(left) && left.items.length === 0) document.deleteIn(group)
  return document.toString({ lineWidth: 0 })
}

/** Places of the gateway's errors in the text: of the setting, or of the group that lacks it. */
export function placed(text: string, problems: readonly Problem[]): Marked[] {
  const document = parseDocument(text)
  return problems.map(({ path, message }) => {
    let node: unknown = document.contents
    let range: [number, number] = [0, Math.min(text.length, text.indexOf('\n') + 1 || text.length)]
    for (const name of path.split('.').filter((part) => part !== '')) {
      const found = isMap(node)
        ? node.items.find((pair) => isScalar(pair.key) && String(pair.key.value) === name)
        : undefined
      const next: unknown = isSeq(node) ? node.items[Number(name)] : found?.value
      const mark: unknown = found?.key ?? next
      if (!isNode(mark) || mark.range == null) break
      const end = isScalar(next) && next.range != null ? next.range[1] : mark.range[1]
      range = [mark.range[0], end]
      node = next
    }
    return { from: range[0], to: range[1], message: path === '' ? message : `${path}: ${message}` }
  })
}
