import { Button, Group, Menu, Text } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { answered, api } from '../../api/client'
import type { ExperimentDetail } from '../../api/openapi'
import { type Action, actionsOf } from '../../lib/states'
import { ChangeForm } from './ChangeForm'
import { DeriveForm } from './DeriveForm'
import { MoveForm } from './MoveForm'

const LABELS: Record<Action, string> = { pause: 'Pause', resume: 'Resume', cancel: 'Cancel', kill: 'Kill' }
const ENDS: Action[] = ['cancel', 'kill']

type Form = 'fork' | 'continue' | 'change' | 'move'
type Filing = 'archive' | 'unarchive'

/** Buttons that change the experiment, or make another one of it. What ends it is asked for twice. */
export function Actions({ item }: { item: ExperimentDetail }) {
  const client = useQueryClient()
  const [asked, setAsked] = useState<Action | null>(null)
  const [form, setForm] = useState<Form>()
  const change = useMutation({
    mutationFn: (action: Action | Filing) =>
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
  const live = item.ended_us === null
  const close = () => setForm(undefined)
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
      <Button size="compact-md" variant="default" onClick={() => setForm('fork')}>
        Fork
      </Button>
      <Menu position="bottom-end">
        <Menu.Target>
          <Button size="compact-md" variant="default" aria-label="More actions">
            More
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          {!live && <Menu.Item onClick={() => setForm('continue')}>Continue</Menu.Item>}
          {live && <Menu.Item onClick={() => setForm('change')}>Priority, weight, limits</Menu.Item>}
          {live && <Menu.Item onClick={() => setForm('move')}>Move in the queue</Menu.Item>}
          {!live && !item.archived && <Menu.Item onClick={() => change.mutate('archive')}>Archive</Menu.Item>}
          {item.archived && <Menu.Item onClick={() => change.mutate('unarchive')}>Take out of the archive</Menu.Item>}
        </Menu.Dropdown>
      </Menu>
      {(form === 'fork' || form === 'continue') && <DeriveForm item={item} kind={form} onClose={close} />}
      {form === 'change' && <ChangeForm item={item} onClose={close} />}
      {form === 'move' && <MoveForm item={item} onClose={close} />}
    </Group>
  )
}
