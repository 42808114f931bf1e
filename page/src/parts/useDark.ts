import { useComputedColorScheme } from '@mantine/core'

/**
 * True in the dark scheme, from the first rendering on: by its default the library's hook says light until then, and a picture would be
 * drawn twice. For what is painted; the style of elements has variables (lib/schemes.ts).
 */
export function useDark(): boolean {
  return useComputedColorScheme('light', { getInitialValueInEffect: false }) === 'dark'
}
