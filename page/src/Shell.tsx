import { ActionIcon, Alert, AppShell, Burger, Button, Group, NavLink, Text, useMantineColorScheme } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { Link, Outlet, useRouterState } from '@tanstack/react-router'
import { type Link as Connection, useLink, useLive } from './api/live'
import { status } from './api/queries'
import { signOut, whoami } from './api/session'
import { useDark } from './parts/useDark'

const PAGES = [
  { to: '/', label: 'Experiments', inside: ['/', '/new', '/experiments', '/trials'] },
  { to: '/compare', label: 'Compare', inside: ['/compare'] },
  { to: '/cluster', label: 'Cluster', inside: ['/cluster'] },
  { to: '/nodes', label: 'Nodes', inside: ['/nodes'] },
  { to: '/queue', label: 'Queue', inside: ['/queue'] },
  { to: '/events', label: 'Events', inside: ['/events'] },
]

const LINKS: Record<Connection, string> = {
  connecting: '○ connecting',
  live: '● live',
  behind: '◐ behind, catching up',
  offline: '○ offline, trying again',
  refused: '○ not live, trying again',
}

const STATUS_RETRY_MS = 5_000
/** Until the gateway has said where the log ends nothing is live: it is asked so often. */

/** What is around every page: where one is, whether what one sees is live, and light or dark. */
export function Shell() {
  const path = useRouterState({ select: (state) => state.location.pathname })
  const user = useQuery(whoami())
  const cluster = useQuery({
    ...status(),
    staleTime: Number.POSITIVE_INFINITY,
    refetchInterval: (query) => (query.state.data === undefined ? STATUS_RETRY_MS : false),
  })
  useLive(user.data?.name, cluster.data?.head)
  const link = useLink()
  const [menu, { toggle, close }] = useDisclosure()
  return (
    <AppShell
      header={{ height: 48 }}
      navbar={{ width: 180, breakpoint: 'sm', collapsed: { mobile: !menu } }}
      padding="md"
    >
      <AppShell.Header>
        <Group h="100%" px="md" justify="space-between">
          <Group gap="xs">
            <Burger opened={menu} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Pages" />
            <Text component={Link} to="/" fw={700} size="lg" c="var(--mantine-color-text)" td="none">
              tenuto
            </Text>
          </Group>
          <Group gap="sm">
            <Text size="xs" c={link === 'live' ? 'teal' : 'dimmed'} role="status">
              {LINKS[link]}
            </Text>
            <SchemeButton />
            <SignOut />
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs">
        {PAGES.map((page) => (
          <NavLink
            key={page.to}
            component={Link}
            to={page.to}
            label={page.label}
            onClick={close}
            active={page.inside.some((start) => path === start || (start !== '/' && path.startsWith(start)))}
          />
        ))}
      </AppShell.Navbar>
      <AppShell.Main>
        {link === 'offline' && (
          <Alert color="yellow" mb="md">
            The gateway does not answer. What you see is as of a moment ago; it goes on by itself.
          </Alert>
        )}
        {link === 'refused' && (
          <Alert color="yellow" mb="md">
            The gateway refuses to tell what happens, or something before it does: what you see is as of a moment ago.
            It is asked again by itself, at least once a minute.
          </Alert>
        )}
        <Outlet />
      </AppShell.Main>
    </AppShell>
  )
}

function SignOut() {
  const user = useQuery(whoami())
  const leave = async () => {
    await signOut()
    window.location.assign('/') // a new page holds nothing of what this user saw
  }
  return (
    <Button size="compact-xs" variant="subtle" onClick={leave} title={`You are ${user.data?.name ?? ''}`}>
      Sign out
    </Button>
  )
}

function SchemeButton() {
  const { setColorScheme } = useMantineColorScheme()
  const dark = useDark()
  return (
    <ActionIcon
      variant="default"
      aria-label={dark ? 'Light colours' : 'Dark colours'}
      onClick={() => setColorScheme(dark ? 'light' : 'dark')}
    >
      {dark ? '☀' : '☾'}
    </ActionIcon>
  )
}
