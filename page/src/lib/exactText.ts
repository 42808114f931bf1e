/** The text with each value as it was recorded. `values`: in the order in which the text shows them. Texts between them stay as
 * the browser writes them, with its tabs and line ends. */
export function withWhole(text: string, values: readonly { shown: string; whole: string }[]): string {
  let [from, whole] = [0, '']
  for (const value of values) {
    const at = text.indexOf(value.shown, from)
    if (at < 0) continue
    whole += text.slice(from, at) + value.whole
    from = at + value.shown.length
  }
  return whole + text.slice(from)
}
