import { useElementSize } from '@mantine/hooks'
import { type RefObject, useEffect, useRef } from 'react'

interface Found {
  /** Of the element that the picture fills. */
  ref: ReturnType<typeof useElementSize>['ref']
  canvas: RefObject<HTMLCanvasElement | null>
  width: number
}

/** A canvas as wide as its element, sharp on every screen. `draw` is called in the next frame after it changed: memoize it. */
export function useCanvas(heightPx: number, draw: (to: CanvasRenderingContext2D, widthPx: number) => void): Found {
  const { ref, width } = useElementSize()
  const canvas = useRef<HTMLCanvasElement>(null)
  useEffect(() => {
    const element = canvas.current
    if (element === null || width === 0) return
    const frame = requestAnimationFrame(() => {
      const scale = window.devicePixelRatio || 1
      element.width = Math.round(width * scale)
      element.height = Math.round(heightPx * scale)
      const context = element.getContext('2d')
      if (context === null) return
      context.setTransform(scale, 0, 0, scale, 0, 0)
      draw(context, width)
    })
    return () => cancelAnimationFrame(frame)
  }, [draw, width, heightPx])
  return { ref, canvas, width }
}
