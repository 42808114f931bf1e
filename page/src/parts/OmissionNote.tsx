import { Text } from '@mantine/core'

/** What a picture leaves out, above it; nothing for an empty sentence. */
export function OmissionNote({ told }: { told: string }) {
  if (told === '') return null
  return (
    <Text size="sm" c="orange" role="note">
      {told}
    </Text>
  )
}
