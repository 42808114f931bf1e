/** JSON whose whole numbers are more than a number of JavaScript holds (seeds, hashes), shown with all their digits. */

const LARGE = /"(?:[^"\\]|\\.)*"|(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g
const MARK = 'digits '

/** As JSON.parse, but a whole number of sixteen digits and more becomes a marked text. */
export function parseExact(text: string): unknown {
  return JSON.parse(text.replace(LARGE, (found) => (found.startsWith('"') ? found : `"${MARK}${found}"`)))
}

/** On indented lines, as it was recorded. */
export function shownJson(value: unknown): string {
  return JSON.stringify(value, null, 2).replaceAll(new RegExp(`"${MARK}(-?\\d+)"`, 'g'), '$1')
}
