/** JSON whose whole numbers keep all their digits. A number of JavaScript holds whole numbers up to 2^53; larger ones (seeds, counts,
 * identifiers of data) become `bigint`, which compares, is a key, and is shown with all its digits. What computes takes `numeric`. */

const LARGE = /(?<![\d.eE+-])-?(?:9\d{15}|\d{17,})(?![\d.eE])/
/** Whole numbers that may be too large: of sixteen digits only those that begin with 9, so that microseconds since 1970 are none. */
const TOKENS = new RegExp(`"(?:[^"\\\\]|\\\\.)*"|${LARGE.source}`, 'g')
const MARK = '\uE000digits:'
/** Begin of a text that stands for such a number, with a character that is in no writing. */
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, 'g')

/** As JSON.parse, but a whole number that JavaScript's numbers cannot hold is a bigint. Throws SyntaxError. */
export function parseExact(text: string): unknown {
  if (!LARGE.test(text)) return JSON.parse(text)
  const marked = text.replace(TOKENS, (found) =>
    found.startsWith('"') || Number.isSafeInteger(Number(found)) ? found : `"${MARK}${found}"`,
  )
  return JSON.parse(marked, (_, value) =>
    typeof value === 'string' && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
  )
}

/** As JSON.stringify, with all digits of a bigint. Undefined, which no JSON has, is "null". */
export function exactText(value: unknown, indent?: number): string {
  const text = JSON.stringify(value, (_, one) => (typeof one === 'bigint' ? `${MARK}${one}` : one), indent)
  return text === undefined ? 'null' : text.replaceAll(MARKED, '$1')
}

/** On indented lines, as it was recorded. */
export const shownJson = (value: unknown): string => exactText(value, 2)

/** The number to compute with, the nearest one for a bigint; undefined for what is no number. */
export function numeric(value: unknown): number | undefined {
  if (typeof value === 'bigint') return Number(value)
  return typeof value === 'number' ? value : undefined
}
