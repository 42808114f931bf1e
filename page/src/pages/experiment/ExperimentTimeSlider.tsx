import { Button, Stack, Text } from '@mantine/core'
import type { UseQueryResult } from '@tanstack/react-query'
import { MOMENTS_MAX, type Moment } from '../../api/queries'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { TimeSlider } from '../../parts/TimeSlider'

interface Props {
  query: UseQueryResult<Moment[]>
  /** False: nobody has looked back yet, and nothing was read for it. */
  opened: boolean
  onOpen: () => void
  at: number | undefined
  onChange: (at: number | undefined) => void
}

/** The time slider over all events of the experiment. */
export function ExperimentTimeSlider({ query, opened, onOpen, at, onChange }: Props) {
  if (!opened)
    return (
      <Button size="compact-sm" variant="default" w="fit-content" onClick={onOpen}>
        Look at earlier moments
      </Button>
    )
  return (
    <QueryBoundary query={query}>
      {(events) => (
        <Stack gap={4}>
          <TimeSlider events={events} at={at} onChange={onChange} />
          {events.length >= MOMENTS_MAX && (
            <Text size="sm" c="dimmed">
              The slider reaches over the first {MOMENTS_MAX.toLocaleString('en')} events; `tenuto exp replay --at`
              shows any moment.
            </Text>
          )}
        </Stack>
      )}
    </QueryBoundary>
  )
}
