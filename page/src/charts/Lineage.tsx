import { Box, ScrollArea, Text } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { useMemo } from 'react'
import { type Copy, line, placed } from '../lib/lineage'
import { shownNumber } from '../lib/numbers'
import { schemeColor } from '../lib/schemes'

const TOP_PX = 36
const ROW_PX = 26
const COLUMN_MIN_PX = 110
const SIDE_PX = 40
const DOT_PX = 6

const FATES = ['trains or waits', 'stopped', 'completed'] as const
const COLORS = { 'trains or waits': 'mark-blue', stopped: 'mark-gray', completed: 'mark-green' } as const

interface Props {
  copies: Copy[]
  picked: string
  onPick: (trial: string) => void
}

/** Each generation is a column; a line leads from a trial to each copy of it. */
export function Lineage({ copies, picked, onPick }: Props) {
  const { ref, width } = useElementSize()
  const nodes = useMemo(() => placed(copies), [copies])
  const chosen = useMemo(() => line(copies, picked), [copies, picked])
  const generations = 1 + copies.reduce((most, copy) => Math.max(most, copy.generation), 0)
  const step = Math.max(COLUMN_MIN_PX, generations > 1 ? (width - 2 * SIDE_PX) / (generations - 1) : 0)
  const drawn = Math.max(width, 2 * SIDE_PX + step * (generations - 1))
  const height = TOP_PX + ROW_PX * (1 + nodes.reduce((most, node) => Math.max(most, node.row), 0)) + 8
  const x = (copy: Copy) => SIDE_PX + step * copy.generation
  const y = (row: number) => TOP_PX + ROW_PX * (row + 0.5)
  const at = new Map(nodes.map((node) => [node.copy.trial, node]))
  const shade = (trial: string) => (chosen.size === 0 || chosen.has(trial) ? 1 : 0.25)
  return (
    <Box ref={ref}>
      <ScrollArea.Autosize mah={620} type="auto">
        <svg width={drawn} height={height} role="group" aria-label={`Lineage of ${copies.length} trials`}>
          {Array.from({ length: generations }, (_, generation) => (
            <text
              key={generation}
              x={SIDE_PX + step * generation}
              y={18}
              fontSize={12}
              textAnchor="middle"
              fill="currentColor"
            >
              {generation === 0 ? 'first' : `after ${generation}`}
            </text>
          ))}
          {nodes.map(({ copy, row }) => {
            const parent = at.get(copy.parent ?? '')
            if (parent === undefined) return null
            const [fromX, toX, fromY, toY] = [x(parent.copy), x(copy), y(parent.row), y(row)]
            const middle = toX - Math.min(40, (toX - fromX) / 2)
            return (
              <path
                key={copy.trial}
                d={`M ${fromX} ${fromY} L ${middle - 20} ${fromY} C ${middle} ${fromY} ${middle - 10} ${toY} ${toX} ${toY}`}
                fill="none"
                stroke={schemeColor(COLORS['trains or waits'])}
                strokeOpacity={0.6 * shade(copy.trial)}
                strokeWidth={chosen.has(copy.trial) ? 2.5 : 1.2}
              />
            )
          })}
          {nodes.map(({ copy, row }) => (
            <g
              key={copy.trial}
              role="button"
              tabIndex={0}
              aria-label={wordsOf(copy)}
              aria-pressed={picked === copy.trial}
              opacity={shade(copy.trial)}
              style={{ cursor: 'pointer' }}
              onClick={() => onPick(copy.trial)}
              onKeyDown={(event) => (event.key === 'Enter' || event.key === ' ') && onPick(copy.trial)}
            >
              <circle
                cx={x(copy)}
                cy={y(row)}
                r={picked === copy.trial ? DOT_PX + 2 : DOT_PX}
                fill={schemeColor(COLORS[fateOf(copy)])}
                stroke={picked === copy.trial ? 'currentColor' : 'none'}
                strokeWidth={2}
              />
              <text x={x(copy) + DOT_PX + 4} y={y(row) - 5} fontSize={10} fill="currentColor">
                {copy.number}
              </text>
            </g>
          ))}
        </svg>
      </ScrollArea.Autosize>
      <Text size="sm" c="dimmed">
        {FATES.map((fate) => (
          <span key={fate} style={{ marginRight: 16 }}>
            <span style={{ color: schemeColor(COLORS[fate]) }}>●</span> {fate}
          </span>
        ))}
        a line leads to a copy; pick a trial to see whom it comes from
      </Text>
    </Box>
  )
}

function fateOf(copy: Copy): (typeof FATES)[number] {
  if (copy.stopped === undefined) return 'trains or waits'
  return copy.stopped === 'completed' ? 'completed' : 'stopped'
}

function wordsOf(copy: Copy): string {
  const parent = copy.parent === undefined ? 'of the first generation' : `copy of trial ${copy.parent}`
  const metric = copy.parentMetric === undefined ? '' : ` at ${shownNumber(copy.parentMetric)}`
  return `Trial ${copy.trial}, ${parent}${metric}, ${fateOf(copy)}`
}
