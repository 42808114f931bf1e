import { Center, Loader } from '@mantine/core'

/** While the part of the page that shows an address is loaded. */
export function LoadingPage() {
  return (
    <Center p="xl">
      <Loader role="status" aria-label="Loading" />
    </Center>
  )
}
