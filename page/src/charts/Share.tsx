import { Box, Text } from '@mantine/core'

const HEIGHT_PX = 16

/** Slots in use as a bar, the fair share as a line. */
export function Share({ has, share, most }: { has: number; share: number | null; most: number }) {
  const part = (slots: number) => `${(100 * slots) / most}%`
  const words = `${has} in use${share === null ? '' : `, fair share ${share}`}`
  return (
    <>
      <Box
        flex={1}
        maw={360}
        h={HEIGHT_PX}
        pos="relative"
        bg="var(--mantine-color-default-border)"
        role="img"
        aria-label={words}
      >
        <Box h={HEIGHT_PX} w={part(has)} bg="#0072B2" />
        {share !== null && (
          <Box
            pos="absolute"
            top={-3}
            left={part(share)}
            w={3}
            h={HEIGHT_PX + 6}
            bg="var(--mantine-color-text)"
            ml={-1.5}
          />
        )}
      </Box>
      <Text size="xs" c="dimmed" miw={130}>
        {words}
      </Text>
    </>
  )
}
