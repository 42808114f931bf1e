import { createRootRoute, createRoute, createRouter } from '@tanstack/react-router'
import { clusterSearch } from './lib/clusterSearch'
import { compareSearch } from './lib/compareSearch'
import { eventSearch } from './lib/eventSearch'
import { experimentSearch } from './lib/experimentSearch'
import { listSearch } from './lib/filters'
import { nodesSearch } from './lib/nodes'
import { queueSearch } from './lib/queue'
import { trialSearch } from './lib/trialSearch'
import { ClusterPage } from './pages/cluster/ClusterPage'
import { ComparePage } from './pages/compare/ComparePage'
import { EventsPage } from './pages/events/EventsPage'
import { ExperimentPage } from './pages/experiment/ExperimentPage'
import { ExperimentsPage } from './pages/experiments/ExperimentsPage'
import { NotFound } from './pages/NotFound'
import { NewPage } from './pages/new/NewPage'
import { NodesPage } from './pages/nodes/NodesPage'
import { QueuePage } from './pages/queue/QueuePage'
import { TrialPage } from './pages/trial/TrialPage'
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

const submission = createRoute({ getParentRoute: () => root, path: '/new', component: NewPage })

const trial = createRoute({
  getParentRoute: () => root,
  path: '/trials/$id',
  component: TrialPage,
  validateSearch: trialSearch,
})

const compare = createRoute({
  getParentRoute: () => root,
  path: '/compare',
  component: ComparePage,
  validateSearch: compareSearch,
})

const cluster = createRoute({
  getParentRoute: () => root,
  path: '/cluster',
  component: ClusterPage,
  validateSearch: clusterSearch,
})

const nodes = createRoute({
  getParentRoute: () => root,
  path: '/nodes',
  component: NodesPage,
  validateSearch: nodesSearch,
})

const queue = createRoute({
  getParentRoute: () => root,
  path: '/queue',
  component: QueuePage,
  validateSearch: queueSearch,
})

const events = createRoute({
  getParentRoute: () => root,
  path: '/events',
  component: EventsPage,
  validateSearch: eventSearch,
})

export const router = createRouter({
  routeTree: root.addChildren([experiments, submission, experiment, trial, compare, cluster, nodes, queue, events]),
})

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
