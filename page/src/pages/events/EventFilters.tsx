import { Autocomplete, Group, MultiSelect, NumberInput, TextInput } from '@mantine/core'
import { EVENT_TYPES } from '../../api/eventTypes'
import { type EventSearch, fromInput, localInput } from '../../lib/eventSearch'

const SERVICES = ['user', 'gateway', 'searcher', 'scheduler', 'launcher', 'tracker']

interface Props {
  search: EventSearch
  onChange: (changed: Partial<EventSearch>) => void
}

export function EventFilters({ search, onChange }: Props) {
  const types = search.type?.split(',') ?? []
  return (
    <Group align="end" gap="sm">
      <MultiSelect
        label="Types"
        placeholder={types.length === 0 ? 'Any' : undefined}
        searchable
        clearable
        w={320}
        data={[...EVENT_TYPES]}
        value={types}
        onChange={(value) => onChange({ type: value.join(',') || undefined })}
      />
      <Autocomplete
        label="Recorded by"
        placeholder="Anybody, or user:ada"
        w={180}
        data={SERVICES}
        value={search.service ?? ''}
        onChange={(value) => onChange({ service: value.trim() || undefined })}
      />
      <NumberInput
        label="Experiment"
        placeholder="Any"
        w={110}
        min={1}
        allowDecimal={false}
        value={search.experiment ?? ''}
        onChange={(value) => onChange({ experiment: typeof value === 'number' && value > 0 ? value : undefined })}
      />
      <TextInput
        type="datetime-local"
        label="From"
        value={localInput(search.since)}
        onChange={(event) => onChange({ since: fromInput(event.currentTarget.value) })}
      />
      <TextInput
        type="datetime-local"
        label="To"
        value={localInput(search.until)}
        onChange={(event) => onChange({ until: fromInput(event.currentTarget.value) })}
      />
    </Group>
  )
}
