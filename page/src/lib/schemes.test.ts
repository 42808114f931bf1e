import { expect, test } from 'vitest'
import { CODE_COLORS, colorIn, type Scheme, schemeColor, schemeVariables } from './schemes'

const CONTRAST_MIN = 4.5
/** WCAG 2.2 AA, for text. */
const GROUNDS: Record<Scheme, number[]> = { light: [255, 255, 255], dark: [0x24, 0x24, 0x24] }
const ACTIVE_LINE = { value: 128, alpha: 0.12 }

const numbers = (color: string) => [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16))

function luminance(color: number[]): number {
  const linear = color
    .map((value) => value / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  return 0.2126 * (linear[0] ?? 0) + 0.7152 * (linear[1] ?? 0) + 0.0722 * (linear[2] ?? 0)
}

function contrast(one: number[], other: number[]): number {
  const [a, b] = [luminance(one) + 0.05, luminance(other) + 0.05]
  return Math.max(a, b) / Math.min(a, b)
}

test.each(['light', 'dark'] as const)('code can be read on the %s ground, and in the line of the cursor', (scheme) => {
  const ground = GROUNDS[scheme]
  const active = ground.map((value) => value * (1 - ACTIVE_LINE.alpha) + ACTIVE_LINE.value * ACTIVE_LINE.alpha)
  for (const name of CODE_COLORS)
    for (const behind of [ground, active])
      expect(contrast(numbers(colorIn(scheme, name)), behind), name).toBeGreaterThan(CONTRAST_MIN)
})

test('each colour is declared in both schemes under the name that elements use', () => {
  const light = schemeVariables('light')
  expect(Object.keys(schemeVariables('dark'))).toEqual(Object.keys(light))
  expect(Object.keys(light).map((name) => `var(${name})`)).toContain(schemeColor('code-name'))
  expect(light['--tenuto-mark-blue']).not.toBe(schemeVariables('dark')['--tenuto-mark-blue'])
})
