import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { createElement } from 'react'
import { renderToStaticMarkup } from 'react-dom/server'
import { expect, test, vi } from 'vitest'
import type { ExperimentDetail } from '../../api/openapi'
import { trials } from '../../api/queries'
import { Value } from '../../parts/Value'
import { FailedTrials } from './FailedTrials'

vi.mock('@tanstack/react-router', async (original) => ({
  ...(await original<object>()),
  Link: ({ to, children }: { to: string; children: unknown }) => createElement('a', { href: to }, children as string),
}))

function shown(states: Record<string, number>, found: object[]): string {
  const client = new QueryClient()
  client.setQueryData(trials(3).queryKey, found as never)
  const failed = createElement(FailedTrials, { item: { id: 3, trials: states } as unknown as ExperimentDetail })
  const mantine = createElement(MantineProvider, null, failed)
  return renderToStaticMarkup(createElement(QueryClientProvider, { client }, mantine))
}

test('a screen reader reads out that a trial failed, and why', () => {
  const told = shown({ failed: 1, running: 1 }, [
    { number: 6, state: 'running', error: null },
    { number: 7, state: 'failed', error: 'out of memory' },
  ])
  expect(told).toMatch(/role="alert"/)
  expect(told).toContain('Trial 7 failed')
  expect(told).toContain('href="/trials/3-7"')
  expect(told).toContain('out of memory')
  expect(shown({ running: 2 }, [])).not.toContain('role="alert"')
})

test('a value that is shown shortened has all its digits to copy', () => {
  expect(renderToStaticMarkup(createElement(Value, { of: 0.9712345678901234 }))).toContain(
    'data-whole="0.9712345678901234"',
  )
})
