import { Button } from '@mantine/core'
import type { Zoom } from '../lib/zoom'

/** The way back to all of the curves, where a double click is not at hand. */
export function ResetZoom({ zoom, onReset }: { zoom: Zoom | undefined; onReset: () => void }) {
  if (zoom === undefined) return null
  return (
    <Button size="compact-sm" variant="default" onClick={onReset}>
      Reset zoom
    </Button>
  )
}
