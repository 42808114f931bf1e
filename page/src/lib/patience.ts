/** Longest request in seconds; a page of a list takes milliseconds. */
export const USUAL_SECONDS = 30

/**
 * Longest request in seconds whose answer the cluster computes: as long as the gateway takes at most (importance 120 s, what-if
 * 112 s, most of it waiting on a busy machine), and its way.
 */
export const COMPUTED_SECONDS = 130

const COMPUTED = /\/(importance|what-if)$/

/** Seconds after which a request to this address is given up. */
export function patienceSeconds(address: string): number {
  return COMPUTED.test(new URL(address).pathname) ? COMPUTED_SECONDS : USUAL_SECONDS
}
