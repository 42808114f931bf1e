import { Group, Select, Stack, TextInput, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { tableFeatures, useTable } from '@tanstack/react-table'
import { useMemo } from 'react'
import type { ExperimentView } from '../../api/openapi'
import { experiments } from '../../api/queries'
import { compared, fits, type ListSearch } from '../../lib/filters'
import { labelOf } from '../../lib/states'
import { Asked } from '../../parts/Asked'
import { DataTable } from '../../parts/DataTable'
import { columns, SORTED_BY } from './columns'

const STATES = ['active', 'paused', 'canceling', 'completed', 'failed', 'canceled']
const features = tableFeatures({})
const route = getRouteApi('/')

export function ExperimentsPage() {
  const query = useQuery(experiments())
  return (
    <Stack>
      <Title order={1} size="h2">
        Experiments
      </Title>
      <Asked query={query}>{(list) => <List list={list} />}</Asked>
    </Stack>
  )
}

function List({ list }: { list: ExperimentView[] }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (changed: Partial<ListSearch>) =>
    navigate({ search: (before) => ({ ...before, ...changed }), replace: true })
  const sort = { by: search.by ?? 'id', descending: search.down ?? true }
  const rows = useMemo(() => {
    const value = SORTED_BY[sort.by] ?? ((item: ExperimentView) => item.id)
    return list.filter((item) => fits(item, search)).sort((a, b) => compared(value(a), value(b), sort.descending))
  }, [list, search, sort.by, sort.descending])
  const table = useTable({ features, columns, data: rows })
  const users = useMemo(() => [...new Set(list.map((item) => item.user))].sort(), [list])
  return (
    <Stack gap="sm">
      <Group>
        <TextInput
          aria-label="Search"
          placeholder="Search name, number, label, method, user"
          w={320}
          value={search.text ?? ''}
          onChange={(event) => change({ text: event.currentTarget.value || undefined })}
        />
        <Select
          aria-label="State"
          placeholder="Any state"
          clearable
          w={150}
          data={STATES.map((state) => ({ value: state, label: labelOf(state) }))}
          value={search.state ?? null}
          onChange={(state) => change({ state: state ?? undefined })}
        />
        <Select
          aria-label="User"
          placeholder="Any user"
          clearable
          searchable
          w={160}
          data={users}
          value={search.user ?? null}
          onChange={(user) => change({ user: user ?? undefined })}
        />
      </Group>
      <DataTable
        table={table}
        label="Experiments"
        sort={sort}
        sortable={(column) => column in SORTED_BY}
        onSort={({ by, descending }) => change({ by, down: descending })}
        empty={
          list.length === 0
            ? 'No experiment yet. Submit one: tenuto exp create config.yaml DIR'
            : 'No experiment fits these filters.'
        }
      />
    </Stack>
  )
}
