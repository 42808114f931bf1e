import { Center, Loader } from '@mantine/core'
import { type ComponentProps, lazy, Suspense } from 'react'

const CodeText = lazy(() => import('./CodeText'))

/** Code, loaded when it is first shown. */
export function LazyCode(props: ComponentProps<typeof CodeText>) {
  return (
    <Suspense
      fallback={
        <Center h={props.heightPx}>
          <Loader role="status" aria-label="Loading" />
        </Center>
      }
    >
      <CodeText {...props} />
    </Suspense>
  )
}
