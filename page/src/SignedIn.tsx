import { Alert, Button, Center, Loader, Paper, PasswordInput, Stack, TextInput, Title } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, type ReactNode, useState } from 'react'
import { Refused } from './api/client'
import { whoami } from './api/queries'
import { signIn } from './api/session'

/** The page for who is signed in, and the form for who is not. */
export function SignedIn({ children }: { children: ReactNode }) {
  const me = useQuery(whoami())
  if (me.data !== undefined) return <>{children}</>
  if (me.error instanceof Refused && me.error.status === 401) return <Form />
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
      <Loader aria-label="Loading" />
    </Center>
  )
}

function Form() {
  const client = useQueryClient()
  const [user, setUser] = useState('')
  const [password, setPassword] = useState('')
  const [chosen, setChosen] = useState('')
  const entering = useMutation({
    mutationFn: () => signIn(user, password, chosen),
    onSuccess: () => client.invalidateQueries({ queryKey: ['user'] }),
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
        </Stack>
      </Paper>
    </Center>
  )
}
