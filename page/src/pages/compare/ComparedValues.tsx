import { Anchor, Group, ScrollArea, Switch, Table, Text, Title } from '@mantine/core'
import { getRouteApi, Link } from '@tanstack/react-router'
import { type ReactNode, useMemo } from 'react'
import type { Compared } from '../../api/compared'
import { sideBySide } from '../../lib/compareSearch'
import { flat } from '../../lib/flatNames'
import { duration, secondsBetween } from '../../lib/time'
import { StateBadge } from '../../parts/StateBadge'
import { Value } from '../../parts/Value'
import { useChange } from './useChange'

const route = getRouteApi('/compare')
const COLUMN_PX = 130

/** Results and hyperparameters side by side; what differs comes first. */
export function ComparedValues({ found }: { found: Compared[] }) {
  const { all = false } = route.useSearch()
  const change = useChange()
  const rows = useMemo(() => sideBySide(found.map((one) => flat(one.trial?.hyperparameters ?? {}))), [found])
  const shown = rows.filter((row) => all || row.differs || found.length === 1)
  return (
    <>
      <Group justify="space-between">
        <Title order={2} size="h4">
          Side by side
        </Title>
        <Switch
          label={`${rows.length - rows.filter((row) => row.differs).length} equal hyperparameters, too`}
          checked={all}
          onChange={(event) => change({ all: event.currentTarget.checked || undefined })}
        />
      </Group>
      <ScrollArea viewportProps={{ tabIndex: 0 }}>
        <Table aria-label="Side by side" miw={COLUMN_PX * (found.length + 1)}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th />
              {found.map((one) => (
                <Table.Th key={one.reference}>
                  <Anchor
                    component={Link}
                    to={
                      one.trial && one.reference === one.trial.id
                        ? `/trials/${one.trial.id}`
                        : `/experiments/${one.experiment.id}`
                    }
                    size="sm"
                    fw={600}
                  >
                    {one.experiment.name} {one.reference}
                  </Anchor>
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            <Line name="Trial" cells={found.map((one) => one.trial?.id ?? '–')} />
            <Line
              name="State"
              cells={found.map((one) => (
                <StateBadge key={one.reference} state={one.trial?.state ?? one.experiment.state} />
              ))}
            />
            <Line
              name="Best"
              cells={found.map((one) => (
                <span key={one.reference}>
                  <Value of={one.trial?.best_metric} /> {one.experiment.metric}
                </span>
              ))}
            />
            <Line name="Batches" cells={found.map((one) => one.trial?.batches ?? '–')} />
            <Line name="Seed" cells={found.map((one) => <Value key={one.reference} of={one.trial?.seed} />)} />
            <Line name="Took" cells={found.map(({ trial }) => (trial === null ? '–' : tookOf(trial)))} />
            {shown.map((row) => (
              <Line
                key={row.name}
                name={row.name}
                strong={row.differs}
                cells={row.values.map((value, index) => <Value key={index} of={value} />)}
              />
            ))}
          </Table.Tbody>
        </Table>
      </ScrollArea>
    </>
  )
}

const tookOf = (trial: { requested_us: number; ended_us: number | null }) =>
  trial.ended_us === null ? 'goes on' : duration(secondsBetween(trial.requested_us, trial.ended_us))

function Line({ name, cells, strong = false }: { name: string; cells: ReactNode[]; strong?: boolean }) {
  return (
    <Table.Tr>
      <Table.Th scope="row">
        <Text size="sm" fw={strong ? 700 : 500} c={strong ? undefined : 'dimmed'}>
          {name}
        </Text>
      </Table.Th>
      {cells.map((cell, index) => (
        <Table.Td key={index} fw={strong ? 600 : undefined} style={{ overflowWrap: 'anywhere' }}>
          {cell}
        </Table.Td>
      ))}
    </Table.Tr>
  )
}
