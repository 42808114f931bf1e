import '@mantine/core/styles.css'
import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { CatchBoundary, RouterProvider } from '@tanstack/react-router'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { followSession, takePlace } from './api/session'
import { ErrorPageAlone } from './pages/ErrorPage'
import { copyExactValues } from './parts/copyExactValues'
import { reloadOnceForNewFiles } from './reloading'
import { router } from './routes'
import { SignedIn } from './SignedIn'
import { contrasts, theme } from './theme'

const STALE_MS = 60_000
/** What no event makes out of date is asked for again after so long, when it is looked at. */

// Asked for also where the browser believes to be offline: it knows nothing of a cluster on this machine or in a house without
// the internet, and would wait without a word.
const queries = new QueryClient({
  defaultOptions: {
    queries: { staleTime: STALE_MS, retry: 1, networkMode: 'always' },
    mutations: { networkMode: 'always' },
  },
})
followSession(queries)
copyExactValues()
const place = takePlace()
if (place !== undefined) window.history.replaceState(null, '', place)
reloadOnceForNewFiles()
const element = document.getElementById('root')
if (element === null) throw new Error('index.html has no element for the page')

createRoot(element).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={contrasts} defaultColorScheme="auto">
      <QueryClientProvider client={queries}>
        <CatchBoundary getResetKey={() => ''} errorComponent={ErrorPageAlone}>
          <SignedIn>
            <RouterProvider router={router} />
          </SignedIn>
        </CatchBoundary>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
)
