import { type CSSVariablesResolver, createTheme } from '@mantine/core'
import { schemeVariables } from './lib/schemes'

export const theme = createTheme({
  primaryColor: 'cyan',
  primaryShade: 9,
  fontFamily: 'Inter, system-ui, sans-serif',
  defaultRadius: 'sm',
})

const BADGES = ['blue', 'cyan', 'gray', 'green', 'orange', 'red', 'teal', 'violet', 'yellow']

/** The variables of both schemes. Darker, or in the dark lighter, where the library's own colours have less contrast than WCAG 2.2 AA asks of text, 4.5. */
export const contrasts: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    ...schemeVariables('light'),
    '--mantine-color-dimmed': 'var(--mantine-color-gray-7)',
    ...Object.fromEntries(
      BADGES.map((name) => [
        `--mantine-color-${name}-light-color`,
        `color-mix(in srgb, var(--mantine-color-${name}-9), black 35%)`,
      ]),
    ),
  },
  dark: { ...schemeVariables('dark'), '--mantine-color-dimmed': 'var(--mantine-color-dark-1)' },
})

/** Colours of curves: Okabe and Ito's palette (2008), which colour-blind people tell apart, without its black and yellow. */
export const CURVE_COLORS = ['#0072B2', '#E69F00', '#009E73', '#CC79A7', '#D55E00', '#56B4E9', '#7F7F7F']
