import { Anchor, Code, Paper, ScrollArea, Stack, Text, Title, UnstyledButton } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { eventLinks } from '../../api/events'
import { type Recorded, withoutHashes } from '../../lib/eventSearch'
import { shownJson } from '../../lib/exactJson'
import { moment } from '../../lib/time'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { EventLine } from './EventList'

interface Props {
  position: number
  onPick: (position: number) => void
}

/** One event: its sentence beside what was recorded, what caused it, and what followed. */
export function EventDetail({ position, onPick }: Props) {
  const query = useQuery(eventLinks(position))
  return (
    <Paper withBorder p="sm" component="section" aria-label={`Event ${position}`}>
      <QueryBoundary query={query}>
        {({ event, cause, followers }) => (
          <Stack gap="sm">
            <Title order={2} size="h4">
              {event.type} at {event.position}
            </Title>
            {event.sentence && <Text size="sm">{event.sentence}</Text>}
            <Text size="xs" c="dimmed">
              {moment(event.time_us)} · recorded by {event.actor} · stream {event.stream}
              {/^[0-9]+$/.test(event.correlation_id) && (
                <>
                  {' · '}
                  <Anchor component={Link} to={`/experiments/${event.correlation_id}`} size="xs" underline="always">
                    experiment {event.correlation_id}
                  </Anchor>
                </>
              )}
            </Text>
            <ScrollArea.Autosize mah={320} viewportProps={{ tabIndex: 0 }}>
              <Code block>{shownJson(withoutHashes(event.data))}</Code>
            </ScrollArea.Autosize>
            <Title order={3} size="h5">
              Caused by
            </Title>
            {cause === null ? (
              <Text size="sm" c="dimmed">
                No event: a request of a user, a report of workers or an agent, or the time.
              </Text>
            ) : (
              <Neighbour event={cause} onPick={onPick} />
            )}
            <Title order={3} size="h5">
              What followed
            </Title>
            {followers.length === 0 ? (
              <Text size="sm" c="dimmed">
                Nothing was recorded because of it.
              </Text>
            ) : (
              followers.map((follower) => <Neighbour key={follower.position} event={follower} onPick={onPick} />)
            )}
          </Stack>
        )}
      </QueryBoundary>
    </Paper>
  )
}

function Neighbour({ event, onPick }: { event: Recorded; onPick: (position: number) => void }) {
  return (
    <UnstyledButton
      w="100%"
      px="xs"
      py={4}
      style={{ border: '1px solid var(--mantine-color-default-border)', borderRadius: 4 }}
      onClick={() => onPick(event.position)}
    >
      <EventLine event={event} />
    </UnstyledButton>
  )
}
