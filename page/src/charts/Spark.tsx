import { sparkPath } from '../lib/spark'

const WIDTH_PX = 90
const HEIGHT_PX = 22

interface Props {
  x: readonly number[]
  y: readonly number[]
  label: string
}

/** A curve as small as a word. */
export function Spark({ x, y, label }: Props) {
  return (
    <svg width={WIDTH_PX} height={HEIGHT_PX} role="img" aria-label={label} style={{ display: 'block' }}>
      <path
        d={sparkPath(x, y, WIDTH_PX, HEIGHT_PX)}
        fill="none"
        stroke="var(--mantine-primary-color-filled)"
        strokeWidth={1.5}
      />
    </svg>
  )
}
