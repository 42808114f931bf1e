import { Anchor, Stack, Text, Title } from '@mantine/core'
import { Link } from '@tanstack/react-router'

export function NotFound() {
  return (
    <Stack>
      <Title order={1} size="h2">
        There is no such page
      </Title>
      <Text>
        Begin with the{' '}
        <Anchor component={Link} to="/">
          experiments
        </Anchor>
        .
      </Text>
    </Stack>
  )
}
