import { Button, Group, Stack, Text, Title } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { tableFeatures, useTable } from '@tanstack/react-table'
import { useCallback, useMemo, useState } from 'react'
import { sparks } from '../../api/experiments'
import type { ExperimentView } from '../../api/openapi'
import { experiments } from '../../api/queries'
import {
  asked,
  columnsWithout,
  compared,
  fits,
  isOrdered,
  LIMIT_FIRST,
  LIMIT_MAX,
  type ListSearch,
} from '../../lib/filters'
import { DataTable } from '../../parts/DataTable'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { SaveTable } from '../../parts/SaveTable'
import { Bulk } from './Bulk'
import { columnsOf, FIELDS, SORTED_BY } from './columns'
import { Filters } from './Filters'

const features = tableFeatures({})
const route = getRouteApi('/')
const SPARKS_MAX = 100
const TYPING_MS = 300

export function ExperimentsPage() {
  const search = route.useSearch()
  // What is loaded is searched with each letter, and all experiments when one pauses.
  const [text] = useDebouncedValue(search.text, TYPING_MS)
  const query = useQuery(experiments(asked({ ...search, text }, Date.now() * 1000)))
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={1} size="h2">
          Experiments
        </Title>
        <Button component={Link} to="/new" size="compact-md" variant="default">
          New experiment
        </Button>
      </Group>
      <QueryBoundary query={query}>{({ list, total }) => <List list={list} total={total} />}</QueryBoundary>
    </Stack>
  )
}

function List({ list, total }: { list: ExperimentView[]; total: number }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (changed: Partial<ListSearch>) =>
    navigate({ search: (before) => ({ ...before, ...changed }), replace: true })
  const sort = { by: search.by ?? 'id', descending: search.down ?? true }
  const rows = useMemo(() => {
    const value = SORTED_BY[sort.by] ?? ((item: ExperimentView) => item.id)
    return list.filter((item) => fits(item, search)).sort((a, b) => compared(value(a), value(b), sort.descending))
  }, [list, search, sort.by, sort.descending])
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set())
  const onChoose = useCallback((id: number, isChosen: boolean) => {
    setChosen((before) => new Set(isChosen ? [...before, id] : [...before].filter((one) => one !== id)))
  }, [])
  const without = useMemo(() => columnsWithout({ without: search.without }), [search.without])
  const drawn = useQuery(sparks(without.includes('spark') ? [] : rows.slice(0, SPARKS_MAX).map((item) => item.id))).data
  const curves = useMemo(() => new Map(drawn?.map((one) => [one.experiment_id, one])), [drawn])
  const columns = useMemo(() => columnsOf({ chosen, onChoose }, curves, without), [chosen, onChoose, curves, without])
  const table = useTable({ features, columns, data: rows })
  const picked = rows.filter((item) => chosen.has(item.id))
  const limit = search.limit ?? LIMIT_FIRST
  return (
    <Stack gap="sm">
      <Filters list={list} search={search} onChange={change} />
      {picked.length > 0 && <Bulk items={picked} onDone={() => setChosen(new Set())} />}
      <DataTable
        table={table}
        label="Experiments"
        sort={sort}
        sortable={(column) => column in SORTED_BY}
        onSort={({ by, descending }) => change({ by, down: descending })}
        empty={
          list.length === 0 && total === 0 && Object.keys(search).length === 0
            ? 'No experiment yet. Submit one here, or with tenuto exp create config.yaml DIR'
            : 'No experiment fits these filters.'
        }
      />
      <Group justify="flex-end">
        <SaveTable
          name={['experiments']}
          header={FIELDS}
          rows={() => rows.map((item) => FIELDS.map((name) => item[name]))}
        />
      </Group>
      {total > list.length && (
        <Group>
          <Text size="sm" c="dimmed">
            {isOrdered(sort.by) && search.by !== undefined ? 'The first' : 'The newest'} {list.length} of {total} are
            shown.
          </Text>
          {limit < LIMIT_MAX && (
            <Button
              size="compact-sm"
              variant="default"
              onClick={() => change({ limit: Math.min(LIMIT_MAX, limit * 2) })}
            >
              Show more
            </Button>
          )}
        </Group>
      )}
    </Stack>
  )
}
