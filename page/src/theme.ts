import { createTheme } from '@mantine/core'

export const theme = createTheme({
  primaryColor: 'cyan',
  primaryShade: { light: 8, dark: 5 },
  fontFamily: 'Inter, system-ui, sans-serif',
  defaultRadius: 'sm',
})

/** Colours of curves: Okabe and Ito's palette (2008), which colour-blind people tell apart, without its black and yellow. */
export const CURVE_COLORS = ['#0072B2', '#E69F00', '#009E73', '#CC79A7', '#D55E00', '#56B4E9', '#7F7F7F']
