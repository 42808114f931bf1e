/** What a page reads of its address. */

/** The router adds what a page knows of an address to all that stands in it. Here what it does not know, or what is of the wrong
 * kind, becomes undefined, so that no page draws it. */
export function only<T extends object>(
  known: (raw: Record<string, unknown>) => T,
): (raw: Record<string, unknown>) => T {
  return (raw) => ({ ...Object.fromEntries(Object.keys(raw).map((key) => [key, undefined])), ...known(raw) })
}
