import { Button, Text } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'

/** Asks for what was before, where there is more of the log. */
export function LoadEarlier({ before, onMore }: { before: number | undefined; onMore: () => Promise<void> }) {
  const asking = useMutation({ mutationFn: onMore })
  if (before === undefined) return null
  return (
    <>
      {asking.error && (
        <Text size="sm" c="red" role="alert">
          {asking.error.message}
        </Text>
      )}
      <Button size="compact-sm" variant="default" loading={asking.isPending} onClick={() => asking.mutate()}>
        Show what was before
      </Button>
    </>
  )
}
