import { Code } from '@mantine/core'
import type { ExperimentDetail } from '../../api/openapi'

export function Configuration({ item }: { item: ExperimentDetail }) {
  return (
    <Code block aria-label="Configuration">
      {JSON.stringify(item.config, null, 2)}
    </Code>
  )
}
