/**
 * Colours that differ between the light and the dark scheme. They are variables of the page's style, which the browser changes
 * together with the ground: what is coloured by rendering has the old scheme's colours on the new ground until React's turn.
 */

export type Scheme = 'light' | 'dark'

const COLORS = {
  'code-keyword': { light: '#7b3294', dark: '#d8b4fe' },
  'code-text': { light: '#006d2c', dark: '#8ce99a' },
  'code-number': { light: '#0b5394', dark: '#74c0fc' },
  'code-comment': { light: '#5c636a', dark: '#a6a7ab' },
  'code-name': { light: '#8a4b08', dark: '#ffc078' },
  // Of Okabe and Ito's palette, as theme.ts says of curves.
  'mark-orange': { light: '#E69F00', dark: '#E69F00' },
  'mark-blue': { light: '#0072B2', dark: '#56B4E9' },
  'mark-green': { light: '#009E73', dark: '#009E73' },
  'mark-purple': { light: '#CC79A7', dark: '#CC79A7' },
  'mark-gray': { light: '#868e96', dark: '#909296' },
} as const

export type SchemeColor = keyof typeof COLORS

const NAMES = Object.keys(COLORS) as SchemeColor[]

export const CODE_COLORS = NAMES.filter((name) => name.startsWith('code-'))

/** Colour of an element, for its style or an attribute of SVG. */
export const schemeColor = (name: SchemeColor): string => `var(--tenuto-${name})`

/** The same as a number, for a canvas, which knows no variables. */
export const colorIn = (scheme: Scheme, name: SchemeColor): string => COLORS[name][scheme]

/** Declarations of all of them. */
export function schemeVariables(scheme: Scheme): Record<string, string> {
  return Object.fromEntries(NAMES.map((name) => [`--tenuto-${name}`, colorIn(scheme, name)]))
}
