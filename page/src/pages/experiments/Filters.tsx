import { Button, Checkbox, Group, Menu, Select, Switch, TextInput } from '@mantine/core'
import type { ExperimentView } from '../../api/openapi'
import { columnsWithout, type ListSearch, STATES, shownWithout, TIMES, type Time } from '../../lib/filters'
import { labelOf } from '../../lib/states'
import { OPTIONAL } from './columns'

interface Props {
  list: ExperimentView[]
  search: ListSearch
  onChange: (changed: Partial<ListSearch>) => void
}

/** What the list shows. */
export function Filters({ list, search, onChange }: Props) {
  const users = names([...list.map((item) => item.user), search.user])
  const workspaces = names([...list.map((item) => item.workspace), search.workspace])
  const labels = names([...list.flatMap((item) => item.labels), search.label])
  const methods = names([...list.map((item) => item.method), search.method])
  const without = columnsWithout(search)
  const pick = (
    key: 'state' | 'user' | 'workspace' | 'label' | 'method',
    placeholder: string,
    data: string[],
    width = 140,
  ) => (
    <Select
      aria-label={placeholder.replace('Any ', '').replace(/^./, (letter) => letter.toUpperCase())}
      placeholder={placeholder}
      clearable
      searchable={data.length > 8}
      w={width}
      data={data.map((value) => ({ value, label: key === 'state' ? labelOf(value) : value }))}
      value={search[key] ?? null}
      onChange={(value) => onChange({ [key]: value ?? undefined })}
    />
  )
  return (
    <Group gap="sm">
      <TextInput
        aria-label="Search"
        placeholder="Search name, number, label, method, user"
        w={280}
        value={search.text ?? ''}
        onChange={(event) => onChange({ text: event.currentTarget.value || undefined })}
      />
      {pick('state', 'Any state', [...STATES])}
      {pick('user', 'Any user', users)}
      {workspaces.length > 1 || search.workspace !== undefined
        ? pick('workspace', 'Any workspace', workspaces, 160)
        : null}
      {pick('label', 'Any label', labels)}
      {pick('method', 'Any method', methods)}
      <Select
        aria-label="Time"
        placeholder="Any time"
        clearable
        w={130}
        data={(Object.keys(TIMES) as Time[]).map((value) => ({ value, label: `last ${value}` }))}
        value={search.time ?? null}
        onChange={(time) => onChange({ time: (time as Time | null) ?? undefined })}
      />
      <Switch
        label="archived, too"
        checked={search.archived ?? false}
        onChange={(event) => onChange({ archived: event.currentTarget.checked || undefined })}
      />
      <Menu closeOnItemClick={false}>
        <Menu.Target>
          <Button variant="default">Columns</Button>
        </Menu.Target>
        <Menu.Dropdown p="sm">
          {Object.entries(OPTIONAL).map(([id, name]) => (
            <Checkbox
              key={id}
              label={name}
              py={4}
              checked={!without.includes(id)}
              onChange={(event) => {
                const next = event.currentTarget.checked ? without.filter((one) => one !== id) : [...without, id]
                onChange({ without: shownWithout(next) })
              }}
            />
          ))}
        </Menu.Dropdown>
      </Menu>
    </Group>
  )
}

const names = (all: (string | undefined)[]) =>
  [...new Set(all.filter((name): name is string => name !== undefined))].sort((a, b) => a.localeCompare(b))
