import '@mantine/core/styles.css'
import { MantineProvider } from '@mantine/core'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { router } from './routes'
import { SignedIn } from './SignedIn'
import { contrasts, theme } from './theme'

const queries = new QueryClient({ defaultOptions: { queries: { staleTime: 60_000, retry: 1 } } })
const element = document.getElementById('root')
if (element === null) throw new Error('index.html has no element for the page')

createRoot(element).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={contrasts} defaultColorScheme="auto">
      <QueryClientProvider client={queries}>
        <SignedIn>
          <RouterProvider router={router} />
        </SignedIn>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
)
