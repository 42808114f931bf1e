/** A page that is open while the gateway is updated names files that are gone. Loaded anew it names the new ones. */

const AGAIN_MS = 30_000
/** A page that was loaded anew so recently and still lacks a file would lack it the next time, too: the error is shown. */

/** `lastMs`: when this tab was loaded anew for this reason; undefined: never. */
export function mayReload(lastMs: number | undefined, nowMs: number): boolean {
  return lastMs === undefined || nowMs - lastMs > AGAIN_MS
}
