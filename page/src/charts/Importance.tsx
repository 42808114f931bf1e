import { Box, Group, Progress, Stack, Text } from '@mantine/core'

interface Props {
  parts: readonly { name: string; importance: number }[]
}

/** Part of the metric's variance that each hyperparameter explains by itself. */
export function Importance({ parts }: Props) {
  return (
    <Stack
      gap="xs"
      component="ol"
      p={0}
      m={0}
      style={{ listStyle: 'none' }}
      aria-label="Importance of the hyperparameters"
    >
      {parts.map(({ name, importance }) => (
        <Box key={name} component="li">
          <Group justify="space-between" gap="xs">
            <Text size="sm">{name}</Text>
            <Text size="sm" c="dimmed">
              {(100 * importance).toFixed(importance < 0.1 ? 1 : 0)} %
            </Text>
          </Group>
          <Progress value={100 * importance} aria-label={name} />
        </Box>
      ))}
    </Stack>
  )
}
