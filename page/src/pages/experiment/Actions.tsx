import { Button, Group, Text } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { answered, api } from '../../api/client'
import type { ExperimentDetail } from '../../api/openapi'
import { type Action, actionsOf } from '../../lib/states'

const LABELS: Record<Action, string> = { pause: 'Pause', resume: 'Resume', cancel: 'Cancel', kill: 'Kill' }
const ENDS: Action[] = ['cancel', 'kill']

/** Buttons that change the experiment. What ends it is asked for twice. */
export function Actions({ item }: { item: ExperimentDetail }) {
  const client = useQueryClient()
  const [asked, setAsked] = useState<Action | null>(null)
  const change = useMutation({
    mutationFn: (action: Action) =>
      answered(
        api.POST(`/api/v1/experiments/{experiment_id}/${action}`, { params: { path: { experiment_id: item.id } } }),
      ),
    onSettled: () => {
      setAsked(null)
      void client.invalidateQueries({ queryKey: ['experiment', item.id] })
    },
  })
  const press = (action: Action) => {
    if (ENDS.includes(action) && asked !== action) setAsked(action)
    else change.mutate(action)
  }
  return (
    <Group gap="xs">
      {change.error && (
        <Text size="sm" c="red" role="alert">
          {change.error.message}
        </Text>
      )}
      {actionsOf(item.state).map((action) => (
        <Button
          key={action}
          size="compact-md"
          variant={asked === action ? 'filled' : 'default'}
          color={asked === action ? 'red' : undefined}
          loading={change.isPending && change.variables === action}
          onClick={() => press(action)}
        >
          {asked === action ? `Really ${action}?` : LABELS[action]}
        </Button>
      ))}
    </Group>
  )
}
