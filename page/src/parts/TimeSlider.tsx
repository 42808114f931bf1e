import { Button, Group, Slider, Text } from '@mantine/core'
import { useEffect, useMemo, useState } from 'react'
import type { Moment } from '../api/queries'
import { moment } from '../lib/time'

const PLAY_MS = 40
const PLAY_STEPS = 250
/** A whole history is played in ten seconds. */

interface Props {
  events: readonly Moment[]
  /** Position of the log that is shown; undefined: now. */
  at: number | undefined
  onChange: (at: number | undefined) => void
}

/** The time slider: any moment of the log, and play from there on. */
export function TimeSlider({ events, at, onChange }: Props) {
  const positions = useMemo(() => events.map((event) => event.position), [events])
  const last = positions.length - 1
  const index =
    at === undefined
      ? last
      : Math.max(
          0,
          positions.findLastIndex((position) => position <= at),
        )
  const [playing, setPlaying] = useState(false)
  useEffect(() => {
    if (!playing) return
    const step = Math.max(1, Math.ceil(last / PLAY_STEPS))
    const timer = setTimeout(() => {
      if (index + step >= last) {
        setPlaying(false)
        onChange(undefined)
      } else onChange(positions[index + step])
    }, PLAY_MS)
    return () => clearTimeout(timer)
  }, [playing, index, last, positions, onChange])
  if (last < 1) return null
  const shown = events[index]
  return (
    <Group wrap="nowrap">
      <Button
        size="compact-sm"
        variant="default"
        onClick={() => {
          if (!playing && index === last) onChange(positions[0])
          setPlaying(!playing)
        }}
      >
        {playing ? 'Stop' : 'Play'}
      </Button>
      <Slider
        flex={1}
        min={0}
        max={last}
        value={index}
        thumbLabel="Moment of the log"
        label={(value) => `position ${positions[value] ?? ''}`}
        onChange={(value) => {
          setPlaying(false)
          onChange(value >= last ? undefined : positions[value])
        }}
      />
      <Text size="sm" c="dimmed" miw={190} ta="right" data-moment={at ?? 'now'}>
        {at === undefined || shown === undefined ? 'now' : moment(shown.time_us)}
      </Text>
    </Group>
  )
}
