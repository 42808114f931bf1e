import { Button, Group, NumberInput, Popover, Stack, Text } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import { answered, api } from '../../api/client'
import type { QueueRow } from '../../api/openapi'
import { priorityOf } from '../../lib/queue'

/** The priority of an experiment, to be changed. */
export function Priority({ row }: { row: QueueRow }) {
  const client = useQueryClient()
  const [open, setOpen] = useState(false)
  const [given, setGiven] = useState<string | number>(row.priority)
  const wanted = priorityOf(given)
  const change = useMutation({
    mutationFn: (priority: number) =>
      answered(
        api.PATCH('/api/v1/experiments/{experiment_id}', {
          params: { path: { experiment_id: row.experiment_id } },
          body: { priority },
        }),
      ),
    onSuccess: () => setOpen(false),
    onSettled: () => client.invalidateQueries({ queryKey: ['queue'] }),
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (wanted !== undefined) change.mutate(wanted)
  }
  const toggle = (next: boolean) => {
    setGiven(row.priority)
    change.reset()
    setOpen(next)
  }
  return (
    <Popover opened={open} onChange={toggle} trapFocus returnFocus withArrow>
      <Popover.Target>
        <Button
          size="compact-sm"
          variant="subtle"
          aria-label={`Priority ${row.priority} of experiment ${row.experiment_id}, change`}
          onClick={() => toggle(!open)}
        >
          {row.priority}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <form onSubmit={submit}>
          <Stack gap="xs" maw={240}>
            <Group align="end" wrap="nowrap">
              <NumberInput
                label="Priority"
                description="1 to 99, 1 is the most urgent"
                min={1}
                max={99}
                allowDecimal={false}
                value={given}
                onChange={setGiven}
              />
              <Button type="submit" disabled={wanted === undefined} loading={change.isPending}>
                Set
              </Button>
            </Group>
            {change.error && (
              <Text size="sm" c="red" role="alert">
                {change.error.message}
              </Text>
            )}
          </Stack>
        </form>
      </Popover.Dropdown>
    </Popover>
  )
}
