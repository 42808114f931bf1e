import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from '@tanstack/react-router'
import { clusterSearch } from './lib/clusterSearch'
import { compareSearch } from './lib/compareSearch'
import { eventSearch } from './lib/eventSearch'
import { experimentSearch } from './lib/experimentSearch'
import { listSearch } from './lib/filters'
import { nodesSearch } from './lib/nodes'
import { queueSearch } from './lib/queue'
import { only } from './lib/searchParams'
import { trialSearch } from './lib/trialSearch'
import { ErrorPage, ErrorPageAlone } from './pages/ErrorPage'
import { LoadingPage } from './pages/LoadingPage'
import { NotFound } from './pages/NotFound'
import { Shell } from './Shell'

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound, errorComponent: ErrorPageAlone })

const experiments = createRoute({
  getParentRoute: () => root,
  path: '/',
  component: lazyRouteComponent(() => import('./pages/experiments/ExperimentsPage'), 'ExperimentsPage'),
  validateSearch: only(listSearch),
})

const experiment = createRoute({
  getParentRoute: () => root,
  path: '/experiments/$id',
  component: lazyRouteComponent(() => import('./pages/experiment/ExperimentPage'), 'ExperimentPage'),
  validateSearch: only(experimentSearch),
})

const submission = createRoute({
  getParentRoute: () => root,
  path: '/new',
  validateSearch: only(() => ({})),
  component: lazyRouteComponent(() => import('./pages/new/NewPage'), 'NewPage'),
})

const trial = createRoute({
  getParentRoute: () => root,
  path: '/trials/$id',
  component: lazyRouteComponent(() => import('./pages/trial/TrialPage'), 'TrialPage'),
  validateSearch: only(trialSearch),
})

const compare = createRoute({
  getParentRoute: () => root,
  path: '/compare',
  component: lazyRouteComponent(() => import('./pages/compare/ComparePage'), 'ComparePage'),
  validateSearch: only(compareSearch),
})

const cluster = createRoute({
  getParentRoute: () => root,
  path: '/cluster',
  component: lazyRouteComponent(() => import('./pages/cluster/ClusterPage'), 'ClusterPage'),
  validateSearch: only(clusterSearch),
})

const nodes = createRoute({
  getParentRoute: () => root,
  path: '/nodes',
  component: lazyRouteComponent(() => import('./pages/nodes/NodesPage'), 'NodesPage'),
  validateSearch: only(nodesSearch),
})

const queue = createRoute({
  getParentRoute: () => root,
  path: '/queue',
  component: lazyRouteComponent(() => import('./pages/queue/QueuePage'), 'QueuePage'),
  validateSearch: only(queueSearch),
})

const events = createRoute({
  getParentRoute: () => root,
  path: '/events',
  component: lazyRouteComponent(() => import('./pages/events/EventsPage'), 'EventsPage'),
  validateSearch: only(eventSearch),
})

export const router = createRouter({
  routeTree: root.addChildren([experiments, submission, experiment, trial, compare, cluster, nodes, queue, events]),
  // What no page knows is taken out of the address, too.
  search: { strict: true },
  defaultErrorComponent: ErrorPage,
  defaultPendingComponent: LoadingPage,
})

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
