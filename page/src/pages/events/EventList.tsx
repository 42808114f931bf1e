import { Box, Group, Text, UnstyledButton } from '@mantine/core'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useRef } from 'react'
import { gist, type Recorded } from '../../lib/eventSearch'
import { moment } from '../../lib/time'

const ROW_PX = 52
const HEIGHT_PX = 620
const OVERSCAN_ROWS = 10

interface Props {
  events: Recorded[]
  picked: number | undefined
  onPick: (position: number) => void
  /** When the last row comes into view; undefined: there is no more, or it is on its way. */
  onEnd: (() => void) | undefined
}

/** Events, the newest first; only those in view are drawn. */
export function EventList({ events, picked, onPick, onEnd }: Props) {
  const scroll = useRef<HTMLDivElement>(null)
  const virtual = useVirtualizer({
    count: events.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW_PX,
    overscan: OVERSCAN_ROWS,
  })
  const items = virtual.getVirtualItems()
  const atEnd = (items.at(-1)?.index ?? 0) >= events.length - 1
  useEffect(() => {
    if (atEnd && onEnd !== undefined) onEnd()
  }, [atEnd, onEnd])
  if (events.length === 0)
    return (
      <Text c="dimmed" ta="center" py="xl">
        No event fits these filters.
      </Text>
    )
  return (
    <section
      ref={scroll}
      style={{ overflow: 'auto', maxHeight: HEIGHT_PX }}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: who has no mouse scrolls a region by the keyboard
      tabIndex={0}
      aria-label="Events, the newest first"
    >
      <Box h={virtual.getTotalSize()} pos="relative">
        {items.map((item) => {
          const event = events[item.index]
          return (
            event && (
              <UnstyledButton
                key={event.position}
                pos="absolute"
                top={item.start}
                left={0}
                w="100%"
                h={ROW_PX}
                px="xs"
                aria-pressed={picked === event.position}
                bg={picked === event.position ? 'var(--mantine-primary-color-light)' : undefined}
                style={{ borderBottom: '1px solid var(--mantine-color-default-border)' }}
                onClick={() => onPick(event.position)}
              >
                <EventLine event={event} />
              </UnstyledButton>
            )
          )
        })}
      </Box>
    </section>
  )
}

/** An event in two lines. */
export function EventLine({ event }: { event: Recorded }) {
  return (
    <>
      <Group gap="xs" wrap="nowrap">
        <Text size="xs" c="dimmed" miw={44}>
          {event.position}
        </Text>
        <Text size="sm" fw={600} style={{ flexShrink: 0 }}>
          {event.type}
        </Text>
        <Text size="xs" c="dimmed" truncate visibleFrom="sm">
          {event.actor}
          {event.correlation_id &&
            ` · ${/^[0-9]+$/.test(event.correlation_id) ? 'experiment ' : ''}${event.correlation_id}`}
        </Text>
        <Text size="xs" c="dimmed" ml="auto" style={{ flexShrink: 0 }} title={moment(event.time_us)}>
          {moment(event.time_us).slice(5)}
        </Text>
      </Group>
      <Text size="xs" truncate>
        {gist(event)}
      </Text>
    </>
  )
}
