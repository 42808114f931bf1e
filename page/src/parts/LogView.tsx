import {
  Alert,
  Box,
  Button,
  Center,
  Group,
  Loader,
  NumberInput,
  SegmentedControl,
  Select,
  Stack,
  Text,
  TextInput,
} from '@mantine/core'
import { useDebouncedCallback } from '@mantine/hooks'
import { Link } from '@tanstack/react-router'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useRef, useState } from 'react'
import { type LogSource, useLog } from '../api/logs'
import type { LogLineView } from '../api/openapi'
import { LEVELS, type Level, type LogSearch, levelOf, plain } from '../lib/logSearch'
import { moment } from '../lib/time'
import { SaveLog } from './SaveLog'

const HEIGHT_PX = 560
const LINE_PX = 20
const TYPING_MS = 300
const NEAR_END_PX = 60

const COLORS: Partial<Record<Level, string>> = { warning: 'orange', error: 'red', critical: 'red', debug: 'dimmed' }

interface Props {
  source: LogSource
  search: LogSearch
  onChange: (changed: LogSearch) => void
  /** Whether lines may still come. */
  live: boolean
}

/** Lines of workers with search, level and rank; the newest ones stay in view until one scrolls away from them. */
export function LogView({ source, search, onChange, live }: Props) {
  const log = useLog(source, search, live)
  const [text, setText] = useState(search.text ?? '')
  const typed = useDebouncedCallback((value: string) => onChange({ text: value || undefined }), TYPING_MS)
  return (
    <Stack gap="sm">
      <Group gap="sm">
        <TextInput
          aria-label="Search the log"
          placeholder="Search the log"
          w={240}
          value={text}
          onChange={(event) => {
            setText(event.currentTarget.value)
            typed(event.currentTarget.value)
          }}
        />
        <Select
          aria-label="Level"
          placeholder="Any level"
          clearable
          w={150}
          data={LEVELS.map((level) => ({ value: level, label: `${level} and above` }))}
          value={search.level ?? null}
          onChange={(level) => onChange({ level: (level as Level | null) ?? undefined })}
        />
        <NumberInput
          aria-label="Rank"
          placeholder="Any rank"
          w={110}
          min={0}
          allowDecimal={false}
          value={search.rank ?? ''}
          onChange={(rank) => onChange({ rank: typeof rank === 'number' ? rank : undefined })}
        />
        <SegmentedControl
          aria-label="Part of the log"
          value={search.start ? 'start' : 'end'}
          onChange={(part) => onChange({ start: part === 'start' || undefined })}
          data={[
            { value: 'end', label: live ? 'newest, following' : 'newest' },
            { value: 'start', label: 'from the start' },
          ]}
        />
        <SaveLog source={source} search={search} />
      </Group>
      {log.error && (
        <Alert color="red" role="alert">
          {log.error}
        </Alert>
      )}
      {log.loading ? (
        <Center p="xl">
          <Loader role="status" aria-label="Loading" />
        </Center>
      ) : (
        <Lines lines={log.lines} follow={!search.start} named={!('trial' in source)} />
      )}
      {search.start && log.more && (
        <Button variant="default" onClick={log.goOn}>
          Show more
        </Button>
      )}
    </Stack>
  )
}

function Lines({ lines, follow, named }: { lines: LogLineView[]; follow: boolean; named: boolean }) {
  const scroll = useRef<HTMLDivElement>(null)
  const [away, setAway] = useState(false)
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => LINE_PX,
    overscan: 30,
  })
  useEffect(() => {
    if (follow && !away && lines.length > 0) virtual.scrollToIndex(lines.length - 1, { align: 'end' })
  }, [follow, away, lines.length, virtual])
  const scrolled = () => {
    const box = scroll.current
    if (box !== null) setAway(box.scrollHeight - box.scrollTop - box.clientHeight > NEAR_END_PX)
  }
  if (lines.length === 0)
    return (
      <Text c="dimmed" py="xl" ta="center">
        No line fits. The last 10,000 lines are searched; “from the start” goes through all of them.
      </Text>
    )
  return (
    <Box pos="relative">
      <section
        ref={scroll}
        aria-label="Log"
        onWheel={scrolled}
        onKeyUp={scrolled}
        onTouchMove={scrolled}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: who has no mouse scrolls a region by the keyboard
        tabIndex={0}
        style={{
          height: HEIGHT_PX,
          overflow: 'auto',
          border: '1px solid var(--mantine-color-default-border)',
          borderRadius: 'var(--mantine-radius-sm)',
          fontFamily: 'var(--mantine-font-family-monospace)',
          fontSize: 12.5,
          lineHeight: `${LINE_PX}px`,
        }}
      >
        <div style={{ height: virtual.getTotalSize(), position: 'relative' }}>
          {virtual.getVirtualItems().map((item) => {
            const line = lines[item.index]
            return (
              line && (
                <div
                  key={item.key}
                  data-index={item.index}
                  ref={virtual.measureElement}
                  style={{ position: 'absolute', top: 0, width: '100%', transform: `translateY(${item.start}px)` }}
                >
                  <Line line={line} named={named} />
                </div>
              )
            )
          })}
        </div>
      </section>
      {follow && away && (
        <Button
          size="compact-sm"
          pos="absolute"
          bottom={12}
          right={24}
          onClick={() => {
            setAway(false)
            virtual.scrollToIndex(lines.length - 1, { align: 'end' })
          }}
        >
          ↓ newest
        </Button>
      )}
    </Box>
  )
}

function Line({ line, named }: { line: LogLineView; named: boolean }) {
  const text = plain(line.text)
  const level = levelOf(text)
  return (
    <Group gap="xs" wrap="nowrap" align="flex-start" px="xs">
      <Text span inherit c="dimmed" title={`${moment(line.time_us)}, ${line.allocation_id}`} style={{ flexShrink: 0 }}>
        {moment(line.time_us).slice(11)}
      </Text>
      {named && (
        <Text span inherit style={{ flexShrink: 0 }}>
          <Link to="/trials/$id" params={{ id: line.trial_id }} search={{ tab: 'logs' }}>
            {line.trial_id}
          </Link>
        </Text>
      )}
      <Text span inherit c="dimmed" style={{ flexShrink: 0 }} title={`Rank ${line.rank}, ${line.stream}`}>
        r{line.rank}
      </Text>
      <Text
        span
        inherit
        c={level === undefined ? undefined : COLORS[level]}
        style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere', minWidth: 0 }}
      >
        {text}
      </Text>
    </Group>
  )
}
