/** What may stand at a place of a configuration, by its JSON Schema: for the editor, as one types. Pure. */

import type { Tree } from './configText'

export interface Setting {
  name: string
  /** Kind and default, in a few words. */
  detail: string
  info: string
}

export interface Place {
  /** Names of the groups that the cursor is in. */
  path: string[]
  /** Setting whose value is typed; undefined: a name is. */
  setting: string | undefined
  /** Where the word begins that is typed. */
  from: number
}

const LINE = /^( *)(?:([A-Za-z_][A-Za-z0-9_]*):(?: (.*))?)?$/
const WORD = /^( *)([A-Za-z_][A-Za-z0-9_]*)?$/
const VALUE = /^ *([A-Za-z_][A-Za-z0-9_]*): +([A-Za-z0-9_]*)$/

/** The place of the cursor in text written in blocks; undefined inside of lists and braces, and where no word can begin. */
export function placeAt(text: string, offset: number): Place | undefined {
  const lines = text.slice(0, offset).split('\n')
  const line = lines.pop() ?? ''
  const [word, value] = [WORD.exec(line), VALUE.exec(line)]
  if (word === null && value === null) return undefined
  const path: string[] = []
  let indent = line.length - line.trimStart().length
  for (let before = lines.pop(); before !== undefined && indent > 0; before = lines.pop()) {
    if (before.trim() === '' || before.trimStart().startsWith('#')) continue
    const spaces = before.length - before.trimStart().length
    if (spaces >= indent) continue
    const found = LINE.exec(before)
    if (found?.[2] === undefined || (found[3] ?? '').replace(/#.*/, '').trim() !== '') return undefined
    path.unshift(found[2])
    indent = spaces
  }
  return { path, setting: value?.[1], from: offset - (value?.[2] ?? word?.[2] ?? '').length }
}

/** What may be typed there: names that the group does not have yet, or values of the setting. */
export function offered(schema: Tree, config: Tree, { path, setting }: Place): Setting[] {
  let [node, value]: [Tree[], unknown] = [variants(schema, schema, config), config]
  for (const name of path) {
    value = isTree(value) ? value[name] : undefined
    node = below(schema, node, name, value)
  }
  if (setting !== undefined) return valuesOf(below(schema, node, setting, undefined))
  const known = isTree(value) ? value : {}
  const found = new Map<string, Setting>()
  for (const variant of node)
    for (const [name, one] of Object.entries(isTree(variant.properties) ? variant.properties : {}))
      if (!(name in known) && isTree(one)) found.set(name, told(schema, name, one))
  return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

function below(schema: Tree, nodes: readonly Tree[], name: string, value: unknown): Tree[] {
  return nodes.flatMap((node) => {
    const own = isTree(node.properties) ? node.properties[name] : undefined
    const next = own ?? node.additionalProperties
    return isTree(next) ? variants(schema, next, value) : []
  })
}

/** What a schema may be, references followed; of those that differ by a name, such as search methods, the one that is named. */
function variants(schema: Tree, node: Tree, value: unknown): Tree[] {
  if (typeof node.$ref === 'string') {
    const name = node.$ref.slice('#/$defs/'.length)
    const found = isTree(schema.$defs) ? schema.$defs[name] : undefined
    return isTree(found) ? variants(schema, found, value) : []
  }
  const { discriminator } = node
  if (isTree(discriminator) && isTree(discriminator.mapping) && isTree(value)) {
    const named = discriminator.mapping[String(value[String(discriminator.propertyName)])]
    if (typeof named === 'string') return variants(schema, { $ref: named }, value)
  }
  const many = node.oneOf ?? node.anyOf
  if (Array.isArray(many)) return many.filter(isTree).flatMap((one) => variants(schema, one, value))
  return [node]
}

function valuesOf(nodes: readonly Tree[]): Setting[] {
  const found = nodes.flatMap((node) => {
    if (node.const !== undefined) return [node.const]
    if (Array.isArray(node.enum)) return node.enum as unknown[]
    return node.type === 'boolean' ? [true, false] : []
  })
  return [...new Set(found.map(String))].map((name) => ({ name, detail: '', info: '' }))
}

function told(schema: Tree, name: string, node: Tree): Setting {
  const kinds = [...new Set(variants(schema, node, undefined).map((one) => String(one.type ?? '')))]
  const standard = node.default
  const plain = standard !== undefined && standard !== null && typeof standard !== 'object'
  const detail = [kinds.filter((kind) => kind !== '' && kind !== 'null').join(' or '), plain ? `= ${standard}` : '']
  return { name, detail: detail.filter(Boolean).join(' '), info: String(node.description ?? '') }
}

const isTree = (value: unknown): value is Tree => typeof value === 'object' && value !== null && !Array.isArray(value)
