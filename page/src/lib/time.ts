/** Times and durations as people read them. Inputs are microseconds since 1970, as the record has them. */

const UNITS: [string, number][] = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
  ['s', 1],
]

/** "2 d 3 h", "4 min 5 s", "0.3 s": at most two units. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return '–'
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`
  const whole = Math.round(seconds)
  const first = UNITS.findIndex(([, size]) => whole >= size)
  const parts: string[] = []
  let rest = whole
  for (const [name, size] of UNITS.slice(first, first + 2)) {
    const count = Math.floor(rest / size)
    rest -= count * size
    if (count > 0) parts.push(`${count} ${name}`)
  }
  return parts.join(' ')
}

export function secondsBetween(fromUs: number, untilUs: number): number {
  return (untilUs - fromUs) / 1e6
}

/** "2026-11-22 14:03:05" in the reader's time zone. */
export function moment(us: number): string {
  const date = new Date(us / 1000)
  const two = (part: number) => String(part).padStart(2, '0')
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
}
