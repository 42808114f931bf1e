import { Alert, Badge, Code, ScrollArea, Spoiler, Stack, Table, Text } from '@mantine/core'
import { Fragment } from 'react'
import type { DiffView } from '../api/openapi'
import { shownNumber } from '../lib/numbers'
import { Value } from './Value'

const COLORS: Record<string, string> = { likely: 'red', possible: 'orange', unlikely: 'gray', none: 'gray' }
const DETAIL_PX = 160

/** What differs between two experiments or trials, as `tenuto diff` says it: the likely cause first. */
export function Differences({ found }: { found: DiffView }) {
  return (
    <Stack gap="sm">
      <Text size="sm">{resultsOf(found)}</Text>
      {found.gaps.map((gap) => (
        <Alert key={gap} color="gray" p="xs">
          {gap}
        </Alert>
      ))}
      {found.differences.length === 0 ? (
        <Text c="dimmed">
          Nothing recorded differs between {found.a} and {found.b}.
        </Text>
      ) : (
        <ScrollArea viewportProps={{ tabIndex: 0 }}>
          <Table aria-label="Differences" miw={640}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Effect</Table.Th>
                <Table.Th>What</Table.Th>
                <Table.Th>Name</Table.Th>
                <Table.Th>{found.a}</Table.Th>
                <Table.Th>{found.b}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {found.differences.map((one) => (
                <Fragment key={`${one.kind} ${one.name}`}>
                  <Table.Tr>
                    <Table.Td>
                      <Badge variant="light" color={COLORS[one.effect] ?? 'gray'} tt="none" autoContrast>
                        {one.effect}
                      </Badge>
                    </Table.Td>
                    <Table.Td>{one.kind.replaceAll('_', ' ')}</Table.Td>
                    <Table.Td style={{ overflowWrap: 'anywhere' }}>{one.name}</Table.Td>
                    <Table.Td style={{ overflowWrap: 'anywhere' }}>
                      <Value of={one.a} />
                    </Table.Td>
                    <Table.Td style={{ overflowWrap: 'anywhere' }}>
                      <Value of={one.b} />
                    </Table.Td>
                  </Table.Tr>
                  {(one.note || one.detail) && (
                    <Table.Tr>
                      <Table.Td />
                      <Table.Td colSpan={4}>
                        {one.note && (
                          <Text size="xs" c="dimmed">
                            {one.note}
                          </Text>
                        )}
                        {one.detail && (
                          <Spoiler maxHeight={DETAIL_PX} showLabel="Show all" hideLabel="Show less">
                            <Code block>{one.detail}</Code>
                          </Spoiler>
                        )}
                      </Table.Td>
                    </Table.Tr>
                  )}
                </Fragment>
              ))}
            </Table.Tbody>
          </Table>
        </ScrollArea>
      )}
    </Stack>
  )
}

function resultsOf({ results }: DiffView): string {
  if (results.trial_a == null || results.trial_b == null)
    return 'No results can be compared: one of the two has no trial.'
  const best = `Best ${results.metric}: ${shownNumber(results.best_a)} (trial ${results.trial_a}) and ${shownNumber(results.best_b)} (trial ${results.trial_b}).`
  if (results.metrics_equal == null) return `${best} No validation was made at the same number of batches.`
  if (results.metrics_equal) return `${best} All metrics of ${results.validations} validations are equal.`
  return `${best} The validations differ from batch ${results.first_difference_batches} on.`
}
