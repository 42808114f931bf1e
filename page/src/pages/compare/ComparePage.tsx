import { Alert, Button, Center, Group, Loader, Paper, Pill, Stack, Text, TextInput, Title } from '@mantine/core'
import { useQueries } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { type Compared, compared } from '../../api/compared'
import { ITEMS_MAX, itemsOf } from '../../lib/compareSearch'
import { ComparedCurves } from './ComparedCurves'
import { ComparedDifferences } from './ComparedDifferences'
import { ComparedValues } from './ComparedValues'
import { useChange } from './useChange'

const route = getRouteApi('/compare')

export function ComparePage() {
  const search = route.useSearch()
  const items = itemsOf(search.items)
  const queries = useQueries({ queries: items.map((item) => compared(item)) })
  const found = queries.map((query) => query.data).filter((data): data is Compared => data !== undefined)
  const failed = queries.flatMap((query, index) =>
    query.error === null ? [] : [{ item: items[index] ?? '', error: query.error }],
  )
  return (
    <Stack>
      <Title order={1} size="h2">
        Compare
      </Title>
      <Items items={items} />
      {failed.map(({ item, error }) => (
        <Alert key={item} color="red" role="alert" title={`${item} could not be shown`}>
          {error.message}
        </Alert>
      ))}
      {items.length === 0 ? (
        <Text c="dimmed" py="xl" ta="center">
          Name two to twenty experiments or trials, such as 3 and 4-1. An experiment stands for its best trial.
        </Text>
      ) : found.length + failed.length < items.length ? (
        <Center p="xl">
          <Loader aria-label="Loading" />
        </Center>
      ) : (
        found.length > 0 && <Shown found={found} />
      )}
    </Stack>
  )
}

function Shown({ found }: { found: Compared[] }) {
  return (
    <>
      <ComparedCurves found={found} />
      <Paper withBorder p="sm">
        <ComparedValues found={found} />
      </Paper>
      {found.length > 1 && (
        <Paper withBorder p="sm">
          <ComparedDifferences references={found.map((one) => one.reference)} />
        </Paper>
      )}
    </>
  )
}

function Items({ items }: { items: string[] }) {
  const change = useChange()
  const [text, setText] = useState('')
  const set = (next: string[]) => change({ items: next.length > 0 ? next.join(',') : undefined })
  const add = (event: FormEvent) => {
    event.preventDefault()
    set(itemsOf([...items, text].join(',')))
    setText('')
  }
  return (
    <Group gap="xs">
      {items.map((item) => (
        <Pill
          key={item}
          size="md"
          withRemoveButton
          removeButtonProps={{ 'aria-label': `Remove ${item}`, 'aria-hidden': false, tabIndex: 0 }}
          onRemove={() => set(items.filter((one) => one !== item))}
        >
          {item.includes('-') ? `trial ${item}` : `experiment ${item}`}
        </Pill>
      ))}
      {items.length < ITEMS_MAX && (
        <Group gap="xs" component="form" onSubmit={add}>
          <TextInput
            aria-label="Add an experiment or a trial"
            placeholder="3 or 4-1"
            w={110}
            size="xs"
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
          />
          <Button type="submit" size="xs" variant="default" disabled={itemsOf(text).length === 0}>
            Add
          </Button>
        </Group>
      )}
    </Group>
  )
}
