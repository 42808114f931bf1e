import { Button, Code, Group, Modal, ScrollArea, Stack, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { nodeLogs } from '../../api/nodes'
import { QueryBoundary } from '../../parts/QueryBoundary'

/** The last lines that a node's agent, or its boot, has printed, as its provider has them. */
export function NodeLogs({ node, onClose }: { node: string; onClose: () => void }) {
  const found = useQuery(nodeLogs(node))
  return (
    <Modal
      opened
      onClose={onClose}
      size="xl"
      title={`Log of node ${node}`}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Stack>
        <QueryBoundary query={found}>
          {({ logs }) =>
            logs.trim() === '' ? (
              <Text c="dimmed">Nothing has been printed yet.</Text>
            ) : (
              <ScrollArea.Autosize
                mah="60vh"
                viewportProps={{ tabIndex: 0, role: 'region', 'aria-label': `Lines of node ${node}` }}
              >
                <Code block>{logs}</Code>
              </ScrollArea.Autosize>
            )
          }
        </QueryBoundary>
        <Group justify="flex-end">
          <Button size="compact-sm" variant="default" loading={found.isFetching} onClick={() => found.refetch()}>
            Ask again
          </Button>
        </Group>
      </Stack>
    </Modal>
  )
}
