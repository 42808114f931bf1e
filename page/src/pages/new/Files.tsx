import { Alert, Button, Group, Paper, Stack, Text } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { type DragEvent, useEffect, useRef, useState } from 'react'
import { chosenOf, droppedOf } from '../../lib/chosenFiles'
import { shownBytes } from '../../lib/numbers'
import { type Chosen, IGNORE_FILE, refusal, type Sorted, sorted } from '../../lib/packing'

/** The model directory; `all` has what is left out, too. */
export interface Model extends Sorted {
  all: Chosen[]
  refusal: string
}

interface Props {
  model: Model | undefined
  bytesMax: number
  onChange: (model: Model) => void
}

/** Chooses the model directory, or files of it: by a dialog, or dropped here. */
export function Files({ model, bytesMax, onChange }: Props) {
  const directory = useRef<HTMLInputElement>(null)
  const files = useRef<HTMLInputElement>(null)
  const [over, setOver] = useState(false)
  useEffect(() => directory.current?.setAttribute('webkitdirectory', ''), [])
  const take = useMutation({
    mutationFn: async (asked: () => Promise<Chosen[]>): Promise<Model> => {
      const all = await asked()
      const ignoring = (await all.find(({ path }) => path === IGNORE_FILE)?.file.text()) ?? ''
      const found = sorted(all, ignoring)
      return { ...found, all, refusal: refusal(found, bytesMax) }
    },
    onSuccess: onChange,
  })
  const picked = (input: HTMLInputElement) => {
    const list = [...(input.files ?? [])]
    input.value = '' // the same may be chosen again
    if (list.length > 0) take.mutate(async () => chosenOf(list))
  }
  const dropped = (event: DragEvent) => {
    event.preventDefault()
    setOver(false)
    // They are known only while the event is handled.
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter((one) => one !== null)
    const files = [...event.dataTransfer.files]
    if (entries.length > 0) take.mutate(() => droppedOf(entries))
    else if (files.length > 0) take.mutate(async () => chosenOf(files))
  }
  return (
    <Paper
      withBorder
      p="md"
      component="section"
      aria-label="Model directory"
      style={over ? { outline: '2px dashed var(--mantine-color-cyan-6)' } : undefined}
      onDragOver={(event) => {
        event.preventDefault()
        setOver(true)
      }}
      onDragLeave={() => setOver(false)}
      onDrop={dropped}
    >
      <Stack gap="xs">
        <Group>
          <Button variant="default" loading={take.isPending} onClick={() => directory.current?.click()}>
            Choose a directory
          </Button>
          <Button variant="default" loading={take.isPending} onClick={() => files.current?.click()}>
            Choose files
          </Button>
          <Text size="sm" c="dimmed">
            or drop it here
          </Text>
        </Group>
        {[directory, files].map((input, index) => (
          <input
            key={index === 0 ? 'directory' : 'files'}
            ref={input}
            type="file"
            multiple
            hidden
            aria-label={index === 0 ? 'Directory' : 'Files'}
            onChange={(event) => picked(event.currentTarget)}
          />
        ))}
        {model !== undefined && (
          <Text size="sm" role="status">
            {counted(model.kept.length)}, {shownBytes(model.bytes)}
            {model.leftOut > 0 && `; ${model.leftOut} left out: caches, version control, and what ${IGNORE_FILE} names`}
          </Text>
        )}
        {(take.error !== null || (model?.refusal ?? '') !== '') && (
          <Alert color="red" role="alert">
            {take.error?.message ?? model?.refusal}
          </Alert>
        )}
      </Stack>
    </Paper>
  )
}

const counted = (files: number) => (files === 1 ? '1 file' : `${files.toLocaleString('en')} files`)
