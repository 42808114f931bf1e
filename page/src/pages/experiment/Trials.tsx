import { Anchor, Group, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { createColumnHelper, type TableFeatures, tableFeatures, useTable } from '@tanstack/react-table'
import { useMemo } from 'react'
import type { ExperimentDetail, TrialView } from '../../api/openapi'
import type { Past } from '../../api/past'
import { TRIALS_MAX, trials } from '../../api/queries'
import { compared } from '../../lib/filters'
import { shownValue } from '../../lib/numbers'
import { DataTable } from '../../parts/DataTable'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { SaveTable } from '../../parts/SaveTable'
import { StateBadge } from '../../parts/StateBadge'
import { Value } from '../../parts/Value'

const route = getRouteApi('/experiments/$id')
const features = tableFeatures({})
const helper = createColumnHelper<TableFeatures, Row>()
const HPARAM = 'hparam:'
/** Fields of a trial in its table's file, beside its hyperparameters. */
const FIELDS = [
  'id',
  'state',
  'best_metric',
  'best_batches',
  'latest_metric',
  'length',
  'target_length',
  'batches',
  'seed',
  'allocations',
  'failures',
  'error',
  'reason',
] as const

type Row = TrialView

export function Trials({ item, past }: { item: ExperimentDetail; past: Past | undefined }) {
  const query = useQuery({ ...trials(item.id), enabled: past === undefined })
  if (past !== undefined) return <List list={past.trials} item={item} />
  return (
    <QueryBoundary query={query}>
      {(list) => (
        <>
          {list.length >= TRIALS_MAX && (
            <Text size="sm" c="dimmed" pb="xs">
              The first {list.length.toLocaleString('en')} trials are shown, here and in the pictures; `tenuto exp
              describe` shows all.
            </Text>
          )}
          <List list={list} item={item} />
        </>
      )}
    </QueryBoundary>
  )
}

type Cell = string | number | bigint | null | undefined

function cellValue(trial: Row, column: string): Cell {
  if (column.startsWith(HPARAM)) {
    const value = (trial.hyperparameters as Record<string, unknown>)[column.slice(HPARAM.length)]
    return typeof value === 'number' || typeof value === 'bigint' ? value : shownValue(value)
  }
  const values: Record<string, Cell> = {
    number: trial.number,
    state: trial.state,
    best: trial.best_metric,
    latest: trial.latest_metric,
    length: trial.length,
  }
  return values[column]
}

function List({ list, item }: { list: Row[]; item: ExperimentDetail }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const sort = { by: search.by ?? 'number', descending: search.down ?? false }
  const names = useMemo(() => [...new Set(list.flatMap((trial) => Object.keys(trial.hyperparameters)))], [list])
  const columns = useMemo(() => columnsOf(names, item.metric), [names, item.metric])
  const rows = useMemo(
    () => [...list].sort((a, b) => compared(cellValue(a, sort.by), cellValue(b, sort.by), sort.descending)),
    [list, sort.by, sort.descending],
  )
  const table = useTable({ features, columns, data: rows })
  return (
    <>
      <DataTable
        table={table}
        label="Trials"
        sort={sort}
        sortable={(column) => column !== 'why'}
        onSort={({ by, descending }) =>
          navigate({ search: (before) => ({ ...before, by, down: descending }), replace: true })
        }
        empty="No trial has been asked for yet."
      />
      <Group justify="flex-end" pt="xs">
        <SaveTable
          name={['experiment', item.id, 'trials']}
          header={[...FIELDS, ...names.map((name) => `hyperparameters.${name}`)]}
          rows={() => rows.map((trial) => [...FIELDS.map((name) => trial[name]), ...valuesOf(trial, names)])}
        />
      </Group>
    </>
  )
}

function valuesOf(trial: Row, names: readonly string[]): unknown[] {
  return names.map((name) => (trial.hyperparameters as Record<string, unknown>)[name])
}

function columnsOf(hyperparameters: string[], metric: string) {
  return helper.columns([
    helper.display({
      id: 'number',
      header: 'Trial',
      cell: ({ row }) => (
        <Anchor component={Link} to={`/trials/${row.original.id}`} fw={500}>
          {row.original.number}
        </Anchor>
      ),
    }),
    helper.display({ id: 'state', header: 'State', cell: ({ row }) => <StateBadge state={row.original.state} /> }),
    helper.display({
      id: 'best',
      header: `Best ${metric}`,
      cell: ({ row }) => <Value of={row.original.best_metric} />,
    }),
    helper.display({ id: 'latest', header: 'Latest', cell: ({ row }) => <Value of={row.original.latest_metric} /> }),
    helper.display({
      id: 'length',
      header: 'Length',
      cell: ({ row }) => `${row.original.length} of ${row.original.target_length}`,
    }),
    ...hyperparameters.map((name) =>
      helper.display({
        id: `${HPARAM}${name}`,
        header: name,
        cell: ({ row }) => <Value of={(row.original.hyperparameters as Record<string, unknown>)[name]} />,
      }),
    ),
    helper.display({
      id: 'why',
      header: 'Why',
      cell: ({ row: { original: trial } }) => (
        <Text size="sm" c={trial.error ? 'red' : 'dimmed'} truncate maw={420} title={trial.error ?? trial.reason}>
          {trial.error ?? trial.reason}
        </Text>
      ),
    }),
  ])
}
