import { createRootRoute, createRoute, createRouter } from '@tanstack/react-router'
import { experimentSearch } from './lib/experimentSearch'
import { listSearch } from './lib/filters'
import { ExperimentPage } from './pages/experiment/ExperimentPage'
import { ExperimentsPage } from './pages/experiments/ExperimentsPage'
import { NotFound } from './pages/NotFound'
import { Shell } from './Shell'

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound })

const experiments = createRoute({
  getParentRoute: () => root,
  path: '/',
  component: ExperimentsPage,
  validateSearch: listSearch,
})

const experiment = createRoute({
  getParentRoute: () => root,
  path: '/experiments/$id',
  component: ExperimentPage,
  validateSearch: experimentSearch,
})

export const router = createRouter({ routeTree: root.addChildren([experiments, experiment]) })

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
