import { Alert, Button, Group, Modal, NumberInput, Stack } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import { answered, api } from '../../api/client'
import type { ChangeBody, ExperimentDetail } from '../../api/openapi'
import { changes, type Limits } from '../../lib/changes'

interface Props {
  item: ExperimentDetail
  onClose: () => void
}

/** Priority, weight and limits of an experiment that has not ended. */
export function ChangeForm({ item, onClose }: Props) {
  const client = useQueryClient()
  const before: Limits = {
    priority: item.priority,
    weight: item.weight,
    max_slots: item.max_slots,
    max_wall_hours: item.wall_hours_max ?? null,
    max_trials: item.max_trials ?? null,
    max_concurrent_trials: item.max_concurrent_trials ?? null,
  }
  const [values, setValues] = useState(before)
  const body = changes(before, values)
  const change = useMutation({
    mutationFn: (sent: ChangeBody) =>
      answered(
        api.PATCH('/api/v1/experiments/{experiment_id}', { params: { path: { experiment_id: item.id } }, body: sent }),
      ),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ['experiment', item.id] })
      onClose()
    },
  })
  const set = (name: keyof Limits) => (value: string | number) =>
    setValues({ ...values, [name]: typeof value === 'number' ? value : null })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    change.mutate(body)
  }
  return (
    <Modal opened onClose={onClose} title={`Priority, weight and limits of ${item.name}`}>
      <Stack component="form" onSubmit={submit}>
        <NumberInput
          label="Priority"
          description="1 to 99; smaller is served first under the policy priority."
          min={1}
          max={99}
          allowDecimal={false}
          value={values.priority ?? ''}
          onChange={set('priority')}
        />
        <NumberInput
          label="Weight"
          description="Part of the slots under the policy fair_share."
          min={0}
          value={values.weight ?? ''}
          onChange={set('weight')}
        />
        <NumberInput
          label="Most slots at once"
          description="Empty: no limit."
          min={1}
          allowDecimal={false}
          value={values.max_slots ?? ''}
          onChange={set('max_slots')}
        />
        <NumberInput
          label="Most hours"
          description="Waiting and pauses do not count. Empty: no limit but that of its workspace."
          min={0}
          value={values.max_wall_hours ?? ''}
          onChange={set('max_wall_hours')}
        />
        {item.max_trials != null && (
          <NumberInput
            label="Trials in all"
            min={1}
            allowDecimal={false}
            value={values.max_trials ?? ''}
            onChange={set('max_trials')}
          />
        )}
        {item.max_concurrent_trials != null && (
          <NumberInput
            label="Trials at once"
            min={1}
            allowDecimal={false}
            value={values.max_concurrent_trials ?? ''}
            onChange={set('max_concurrent_trials')}
          />
        )}
        {change.error && (
          <Alert color="red" role="alert">
            {change.error.message}
          </Alert>
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Close
          </Button>
          <Button type="submit" loading={change.isPending} disabled={Object.keys(body).length === 0}>
            Change
          </Button>
        </Group>
      </Stack>
    </Modal>
  )
}
