import { Grid, NavLink, ScrollArea, Stack, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { fileContent, files } from '../../api/experiments'
import type { ContextFilesView, ExperimentDetail } from '../../api/openapi'
import { shownBytes } from '../../lib/numbers'
import { LazyCode } from '../../parts/LazyCode'
import { QueryBoundary } from '../../parts/QueryBoundary'

const route = getRouteApi('/experiments/$id')
const HEIGHT_PX = 600
const FIRST = ['model_def.py', 'main.py', 'train.py']

/** Files of the model directory as they were submitted. */
export function CodeTab({ item }: { item: ExperimentDetail }) {
  const query = useQuery(files(item.id))
  return (
    <QueryBoundary query={query}>
      {(found) =>
        found.files.length === 0 ? (
          <Text c="dimmed" py="xl" ta="center">
            The model directory has no files.
          </Text>
        ) : (
          <Browser item={item} found={found} />
        )
      }
    </QueryBoundary>
  )
}

function Browser({ item, found }: { item: ExperimentDetail; found: ContextFilesView }) {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const names = found.files.map((file) => file.path)
  const usual =
    FIRST.find((name) => names.includes(name)) ?? names.find((name) => name.endsWith('.py')) ?? names[0] ?? ''
  const path = search.file ?? usual
  return (
    <Grid>
      <Grid.Col span={{ base: 12, sm: 4, lg: 3 }}>
        <ScrollArea.Autosize mah={HEIGHT_PX} viewportProps={{ tabIndex: 0 }}>
          <nav aria-label="Files">
            {found.files.map((file) => (
              <NavLink
                key={file.path}
                component="button"
                label={file.path}
                rightSection={
                  <Text size="xs" c="dimmed">
                    {shownBytes(file.size_bytes)}
                  </Text>
                }
                active={file.path === path}
                onClick={() => navigate({ search: (before) => ({ ...before, file: file.path }), replace: true })}
              />
            ))}
            {found.more && (
              <Text size="sm" c="dimmed" p="xs">
                There are more files than are listed.
              </Text>
            )}
          </nav>
        </ScrollArea.Autosize>
      </Grid.Col>
      <Grid.Col span={{ base: 12, sm: 8, lg: 9 }}>
        <Content id={item.id} path={path} />
      </Grid.Col>
    </Grid>
  )
}

function Content({ id, path }: { id: number; path: string }) {
  const query = useQuery(fileContent(id, path))
  return (
    <QueryBoundary query={query}>
      {(file) => (
        <Stack gap={4}>
          <Text size="sm" fw={600}>
            {file.path}
          </Text>
          {file.text == null ? (
            <Text c="dimmed">This file of {shownBytes(file.size_bytes)} is no text.</Text>
          ) : (
            <LazyCode
              text={file.text}
              label={file.path}
              heightPx={HEIGHT_PX}
              language={/\.py$/.test(file.path) ? 'python' : /\.ya?ml$/.test(file.path) ? 'yaml' : undefined}
            />
          )}
          {file.cut && (
            <Text size="sm" c="dimmed">
              The first megabyte of {shownBytes(file.size_bytes)} is shown.
            </Text>
          )}
        </Stack>
      )}
    </QueryBoundary>
  )
}
