import { Badge } from '@mantine/core'
import { colorOf, labelOf } from '../lib/states'

export function StateBadge({ state }: { state: string }) {
  return (
    <Badge variant="light" color={colorOf(state)} autoContrast tt="none" miw="max-content">
      {labelOf(state)}
    </Badge>
  )
}
