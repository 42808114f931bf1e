import { shownValue, wholeValue } from '../lib/numbers'

/** A value as people read it. All its digits are told where the pointer rests, and are what is copied of it (`copyExactValues`). */
export function Value({ of: value }: { of: unknown }) {
  const [shown, whole] = [value === null || value === undefined ? '–' : shownValue(value), wholeValue(value)]
  if (whole === '' || whole === shown) return shown
  return (
    <span title={whole} data-whole={whole}>
      {shown}
    </span>
  )
}
