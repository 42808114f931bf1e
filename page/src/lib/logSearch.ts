/** What of a log is shown, kept in the URL. */

export const LEVELS = ['debug', 'info', 'warning', 'error', 'critical'] as const
export type Level = (typeof LEVELS)[number]

export interface LogSearch {
  text?: string | undefined
  rank?: number | undefined
  level?: Level | undefined
  /** From the first line on; else the newest ones are shown, and followed. */
  start?: boolean | undefined
}

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function logSearch(raw: Record<string, unknown>): LogSearch {
  const found: LogSearch = {}
  if ((typeof raw.text === 'string' && raw.text !== '') || typeof raw.text === 'number') found.text = String(raw.text)
  if (typeof raw.rank === 'number' && Number.isInteger(raw.rank) && raw.rank >= 0) found.rank = raw.rank
  if (LEVELS.some((level) => level === raw.level)) found.level = raw.level as Level
  if (raw.start === true) found.start = true
  return found
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: programs colour their lines with these
const COLORS = /\u001b\[[0-9;?]*[A-Za-z]/g

/** The line without the codes that colour it in a terminal; of a progress bar what it showed last. */
export function plain(text: string): string {
  const shown = text.replace(COLORS, '').replace(/\r+$/, '')
  return shown.slice(shown.lastIndexOf('\r') + 1)
}

const LEVEL_OF: Record<string, Level> = {
  DEBUG: 'debug',
  INFO: 'info',
  WARN: 'warning',
  WARNING: 'warning',
  ERROR: 'error',
  CRITICAL: 'critical',
  FATAL: 'critical',
}

/** Level that a line says in capitals near its beginning, as the gateway finds it; undefined where it says none. */
export function levelOf(text: string): Level | undefined {
  const found = /\b(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b/.exec(text.slice(0, 100))
  return found?.[1] === undefined ? undefined : LEVEL_OF[found[1]]
}

/** Number behind which the next page begins, of a header such as `<?after=17&limit=9>; rel="next"`. */
export function nextAfter(link: string | null): number | undefined {
  const query = /<\?([^>]*)>/.exec(link ?? '')?.[1]
  const after = query === undefined ? null : new URLSearchParams(query).get('after')
  return after === null || !/^-?[0-9]+$/.test(after) ? undefined : Number(after)
}

export interface SavedLine {
  trial_id: string
  rank: number
  stream: string
  time_us: number
  text: string
}

/** A line as it stands in a saved file, with the time in UTC. */
export function savedLine({ trial_id, rank, stream, time_us, text }: SavedLine): string {
  return `${new Date(time_us / 1000).toISOString()} ${trial_id} r${rank} ${stream} ${text}`
}
