import { Alert, Button, Center, Loader, Paper, PasswordInput, Stack, TextInput, Title } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, Fragment, type ReactNode, useState } from 'react'
import { Refused } from './api/client'
import { askWho, keepPlace, PROVIDER, signIn, signInByLink, takeLink, waysIn, whoami } from './api/session'

const LINK = takeLink()

/** The page for who is signed in, and the form for who is not. */
export function SignedIn({ children }: { children: ReactNode }) {
  const me = useQuery(whoami())
  const [link, setLink] = useState(LINK)
  if (link !== undefined && !me.isPending)
    return <ByLink code={link} present={me.data?.name} onDone={() => setLink(undefined)} />
  if (me.data === null) return <Form />
  // Another user's page begins anew: what its parts have kept was the first one's.
  if (me.data !== undefined) return <Fragment key={me.data.name}>{children}</Fragment>
  if (me.error !== null)
    return (
      <Center h="100vh">
        <Alert color="red" title="The gateway does not answer" role="alert">
          <Stack align="flex-start">
            {me.error.message}
            <Button size="compact-sm" variant="light" onClick={() => me.refetch()}>
              Try again
            </Button>
          </Stack>
        </Alert>
      </Center>
    )
  return (
    <Center h="100vh">
      <Loader role="status" aria-label="Loading" />
    </Center>
  )
}

/** Asked for with a click: a stranger's link would sign one in as the stranger, who could then see what one does. */
function ByLink({ code, present, onDone }: { code: string; present: string | undefined; onDone: () => void }) {
  const client = useQueryClient()
  const entering = useMutation({
    mutationFn: () => signInByLink(code),
    onSuccess: async () => {
      await askWho(client)
      onDone()
    },
  })
  return (
    <Center h="100vh" component="main">
      <Paper withBorder p="xl" maw={380}>
        <Stack>
          <Title order={1} size="h3">
            Sign in with your link?
          </Title>
          Only if you have just run `tenuto page` yourself.
          {entering.error && (
            <Alert color="red" role="alert">
              {entering.error.message}
            </Alert>
          )}
          {entering.error === null && (
            <Button onClick={() => entering.mutate()} loading={entering.isPending} autoFocus>
              Sign in
            </Button>
          )}
          <Button variant="default" onClick={onDone}>
            {present === undefined ? 'Sign in with a password' : `Go on as ${present}`}
          </Button>
        </Stack>
      </Paper>
    </Center>
  )
}

function Form() {
  const client = useQueryClient()
  const ways = useQuery(waysIn())
  const [user, setUser] = useState('')
  const [password, setPassword] = useState('')
  const [chosen, setChosen] = useState('')
  const entering = useMutation({
    mutationFn: () => signIn(user, password, chosen),
    onSuccess: () => askWho(client),
  })
  const toChoose = entering.error instanceof Refused && entering.error.code === 'password_change'
  const submit = (event: FormEvent) => {
    event.preventDefault()
    entering.mutate()
  }
  return (
    <Center h="100vh" component="main">
      <Paper withBorder p="xl" w={340} component="form" onSubmit={submit}>
        <Stack>
          <Title order={1} size="h3">
            Sign in to Tenuto
          </Title>
          <TextInput
            label="User"
            required
            autoComplete="username"
            value={user}
            onChange={(e) => setUser(e.currentTarget.value)}
          />
          <PasswordInput
            label="Password"
            required
            autoComplete="current-password"
            value={password}
            onChange={(e) => setPassword(e.currentTarget.value)}
          />
          {(toChoose || chosen !== '') && (
            <PasswordInput
              label="New password"
              description="An admin has set yours; choose your own."
              required
              autoComplete="new-password"
              value={chosen}
              onChange={(e) => setChosen(e.currentTarget.value)}
            />
          )}
          {entering.error && !toChoose && (
            <Alert color="red" role="alert">
              {entering.error.message}
            </Alert>
          )}
          <Button type="submit" loading={entering.isPending}>
            Sign in
          </Button>
          {ways.data?.provider && (
            <Button component="a" href={PROVIDER} variant="default" onClick={keepPlace}>
              Sign in at your organisation's provider
            </Button>
          )}
        </Stack>
      </Paper>
    </Center>
  )
}
