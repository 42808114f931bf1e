import { expect, test } from 'vitest'
import { mayReload } from './reloading'

test('a tab is loaded anew once, and again only when a later update needs it', () => {
  expect(mayReload(undefined, 1_000)).toBe(true)
  expect(mayReload(1_000, 5_000)).toBe(false)
  expect(mayReload(1_000, 3_600_000)).toBe(true)
})
