import { Alert, Button, Group, Text } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { answered, api } from '../../api/client'
import type { ExperimentView } from '../../api/openapi'
import { BULK, type BulkAction, takes } from '../../lib/bulk'
import { ITEMS_MAX } from '../../lib/compareSearch'

interface Props {
  items: ExperimentView[]
  onDone: () => void
}

/** Actions on the chosen experiments: on each that it means something for. What ends them is asked for twice. */
export function Bulk({ items, onDone }: Props) {
  const client = useQueryClient()
  const [sure, setSure] = useState<BulkAction>()
  const [refused, setRefused] = useState<string[]>([])
  const change = useMutation({
    mutationFn: async (action: BulkAction) => {
      const sentences: string[] = []
      for (const item of items.filter((one) => takes(one, action))) {
        const path = { experiment_id: item.id }
        await answered(api.POST(`/api/v1/experiments/{experiment_id}/${action}`, { params: { path } })).catch(
          (error: Error) => sentences.push(`${item.name} (${item.id}): ${error.message}`),
        )
      }
      return sentences
    },
    onSuccess: (sentences) => {
      setRefused(sentences)
      if (sentences.length === 0) onDone()
    },
    onSettled: () => {
      setSure(undefined)
      void client.invalidateQueries({ queryKey: ['experiments'] })
    },
  })
  const press = (action: BulkAction) => {
    if (action === 'cancel' && sure !== action) setSure(action)
    else change.mutate(action)
  }
  return (
    <>
      <Group gap="xs" role="group" aria-label="Actions on the chosen experiments">
        <Text size="sm" fw={600}>
          {items.length} chosen
        </Text>
        {BULK.map((action) => {
          const count = items.filter((item) => takes(item, action)).length
          if (count === 0) return null
          const asks = sure === action
          return (
            <Button
              key={action}
              size="compact-sm"
              variant={asks ? 'filled' : 'default'}
              color={asks ? 'red' : undefined}
              loading={change.isPending && change.variables === action}
              onClick={() => press(action)}
            >
              {asks ? `Really cancel ${count}?` : `${action.replace(/^./, (letter) => letter.toUpperCase())} ${count}`}
            </Button>
          )
        })}
        {items.length > 1 && items.length <= ITEMS_MAX && (
          <Button
            size="compact-sm"
            variant="default"
            renderRoot={(props) => (
              <Link {...props} to="/compare" search={{ items: items.map((item) => item.id).join(',') }} />
            )}
          >
            Compare {items.length}
          </Button>
        )}
        <Button size="compact-sm" variant="subtle" onClick={onDone}>
          Choose none
        </Button>
      </Group>
      {refused.length > 0 && (
        <Alert color="red" role="alert" title="Some were refused">
          {refused.map((sentence) => (
            <Text key={sentence} size="sm">
              {sentence}
            </Text>
          ))}
        </Alert>
      )}
    </>
  )
}
