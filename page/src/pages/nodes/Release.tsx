import { Button, Group, Modal, Radio, Stack, Text } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { answered, api } from '../../api/client'
import type { NodeView } from '../../api/openapi'

/** Asks before a node is given back, and what becomes of what runs there. */
export function Release({ node, onClose }: { node: NodeView; onClose: () => void }) {
  const client = useQueryClient()
  const [how, setHow] = useState('drain')
  const release = useMutation({
    mutationFn: () =>
      answered(
        api.POST('/api/v1/nodes/{node_id}/release', {
          params: { path: { node_id: node.id } },
          body: { drain: how === 'drain' },
        }),
      ),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ['nodes'] })
      onClose()
    },
  })
  return (
    <Modal opened onClose={onClose} title={`Give node ${node.id} back?`} closeButtonProps={{ 'aria-label': 'Close' }}>
      <Stack>
        <Radio.Group value={how} onChange={setHow} label="What runs there">
          <Stack gap={6} mt={6}>
            <Radio value="drain" label="ends first" />
            <Radio value="now" label="saves a checkpoint now and goes on elsewhere" />
          </Stack>
        </Radio.Group>
        {release.error && (
          <Text size="sm" c="red" role="alert">
            {release.error.message}
          </Text>
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Keep it
          </Button>
          <Button color="red" loading={release.isPending} onClick={() => release.mutate()}>
            Give it back
          </Button>
        </Group>
      </Stack>
    </Modal>
  )
}
