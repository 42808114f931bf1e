import { Group, Stack, Text } from '@mantine/core'
import type { ReactNode } from 'react'

/** Short facts side by side, each with its name above. */
export function Facts({ facts }: { facts: [string, ReactNode][] }) {
  return (
    <Group gap="xl" align="flex-start" component="dl" m={0}>
      {facts.map(([name, value]) => (
        <Stack key={name} gap={0}>
          <Text size="xs" c="dimmed" component="dt">
            {name}
          </Text>
          <Text size="sm" component="dd" m={0}>
            {value}
          </Text>
        </Stack>
      ))}
    </Group>
  )
}
