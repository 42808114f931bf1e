import { Box, ScrollArea, Text } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { useMemo } from 'react'
import { shownLength } from '../lib/lengths'
import { shownNumber } from '../lib/numbers'
import { HEIGHT_PX, placed } from '../lib/rungPlaces'
import { type Fate, promotions, type Rung } from '../lib/rungs'
import { type SchemeColor, schemeColor } from '../lib/schemes'
import { RungDots } from './RungDots'

const BUTTONS_MAX = 1_000
/** More dots are painted: so many elements take seconds, and nobody goes through them one by one. */

const COLORS: Record<Fate, SchemeColor> = {
  waits: 'mark-orange',
  'goes on': 'mark-blue',
  stopped: 'mark-gray',
  completed: 'mark-green',
}
const SYMBOLS: Record<Fate, string> = { waits: '◐', 'goes on': '▶', stopped: '✕', completed: '✓' }

interface Props {
  rungs: Rung[]
  metric: string
  smallerIsBetter: boolean
  picked: string
  onPick: (trial: string) => void
}

/** Each rung is a column, each trial a dot at its value; a dashed line is the value that the last promoted one had. */
export function Rungs({ rungs, metric, smallerIsBetter, picked, onPick }: Props) {
  const { ref, width: room } = useElementSize()
  const place = useMemo(() => placed(rungs, room, smallerIsBetter), [rungs, room, smallerIsBetter])
  const { width } = place
  const lines = useMemo(() => promotions(rungs), [rungs])
  const painted = rungs.reduce((sum, rung) => sum + rung.dots.length, 0) > BUTTONS_MAX
  return (
    <Box ref={ref}>
      <ScrollArea.Autosize type="auto" pos="relative">
        {painted && (
          <RungDots
            rungs={rungs}
            lines={lines}
            places={place}
            colors={COLORS}
            picked={picked}
            onPick={onPick}
            label={`Trials at the rungs by ${metric}`}
          />
        )}
        <svg
          style={painted ? { position: 'absolute', top: 0, left: 0, pointerEvents: 'none' } : undefined}
          width={width}
          height={HEIGHT_PX}
          role="group"
          aria-label={`Rungs of the search by ${metric}`}
        >
          {place.ticks.map(([y, label]) => (
            <g key={label} aria-hidden>
              <line x1={0} x2={width} y1={y} y2={y} stroke="currentColor" strokeOpacity={0.08} />
              <text x={0} y={y - 3} fontSize={11} fill="currentColor" fillOpacity={0.65}>
                {label}
              </text>
            </g>
          ))}
          {(painted ? [] : lines).map(([from, to]) => (
            <line
              key={`${from.trial} ${to.at}`}
              x1={place.x(from)}
              y1={place.y(from.metric)}
              x2={place.x(to)}
              y2={place.y(to.metric)}
              stroke={schemeColor(COLORS['goes on'])}
              strokeOpacity={picked === '' || picked === from.trial ? 0.5 : 0.08}
              strokeWidth={picked === from.trial ? 2.5 : 1}
            />
          ))}
          {rungs.map((rung) => (
            <g key={rung.key}>
              <text
                x={place.column(rung.key)}
                y={18}
                textAnchor="middle"
                fontSize={13}
                fontWeight={600}
                fill="currentColor"
              >
                {shownLength(rung.length, rung.unit)}
              </text>
              {rung.bracket !== undefined && (
                <text
                  x={place.column(rung.key)}
                  y={33}
                  textAnchor="middle"
                  fontSize={11}
                  fill="currentColor"
                  fillOpacity={0.65}
                >
                  bracket {rung.bracket}
                </text>
              )}
              {rung.cutOff !== undefined && (
                <g stroke="currentColor" strokeOpacity={0.7}>
                  <line
                    x1={place.column(rung.key) - place.spread}
                    x2={place.column(rung.key) + place.spread}
                    y1={place.y(rung.cutOff)}
                    y2={place.y(rung.cutOff)}
                    strokeDasharray="5 4"
                  />
                  <title>
                    The last that may go on has {metric} {shownNumber(rung.cutOff)}
                  </title>
                </g>
              )}
              {(painted ? [] : rung.dots).map((dot) => (
                <circle
                  key={dot.trial}
                  cx={place.x(dot)}
                  cy={place.y(dot.metric)}
                  r={picked === dot.trial ? 7 : 5}
                  fill={schemeColor(COLORS[dot.fate])}
                  fillOpacity={picked === '' || picked === dot.trial ? 0.9 : 0.35}
                  stroke={picked === dot.trial ? 'currentColor' : 'none'}
                  strokeWidth={2}
                  role="button"
                  tabIndex={0}
                  aria-label={`Trial ${dot.trial}, ${metric} ${shownNumber(dot.metric)}, ${dot.fate}`}
                  style={{ cursor: 'pointer' }}
                  onClick={() => onPick(dot.trial)}
                  onKeyDown={(event) => (event.key === 'Enter' || event.key === ' ') && onPick(dot.trial)}
                />
              ))}
            </g>
          ))}
        </svg>
      </ScrollArea.Autosize>
      <Text size="sm" c="dimmed">
        {(Object.keys(SYMBOLS) as Fate[]).map((fate) => (
          <span key={fate} style={{ marginRight: 16 }}>
            <span style={{ color: schemeColor(COLORS[fate]) }}>●</span> {fate}
          </span>
        ))}
        - - the last that may go on; better is up
      </Text>
    </Box>
  )
}
