/** When a stream that was refused is opened again. */

const REOPEN_MS = 1_000
/** First pause: a gateway that starts anew is there after a second. */
export const REOPEN_MS_MAX = 60_000
/** Longest pause: what refuses for long (too many streams, a proxy whose gateway is away) is asked once a minute. */

/** Pause before the next try after so many refusals in a row, doubled each time. `random` in [0, 1) spreads those that were refused
 * together over half of it. */
export function reopenPauseMs(refusals: number, random: number): number {
  const whole = Math.min(REOPEN_MS_MAX, REOPEN_MS * 2 ** Math.max(0, refusals - 1))
  return whole / 2 + (random * whole) / 2
}
