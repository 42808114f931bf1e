import { Alert, Button, Group, Modal, Stack, Switch, Text } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { answered, api, Refused } from '../../api/client'
import type { ExperimentDetail } from '../../api/openapi'
import type { Marked } from '../../lib/configText'
import { flat } from '../../lib/flatNames'
import { LazyCode } from '../../parts/LazyCode'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { type Plan, Problems, SubmissionNotes } from '../../parts/SubmissionNotes'

declare module '@tanstack/react-router' {
  interface HistoryState {
    /** Of the experiment that was just submitted. */
    plan?: Plan
  }
}

type Tools = typeof import('../../lib/configText')

const HEIGHT_PX = 440
const WORDS = {
  fork: {
    title: 'Fork',
    about: 'Runs again with the same code and seed, and with the settings that you change here.',
    act: 'Submit the fork',
  },
  continue: {
    title: 'Continue',
    about:
      "Goes on from the trials' last checkpoints: longer (searcher.max_length), or with more trials (searcher.max_trials).",
    act: 'Continue',
  },
}

interface Props {
  item: ExperimentDetail
  kind: 'fork' | 'continue'
  onClose: () => void
}

/** The configuration as YAML to be edited; what the gateway refuses is shown at its place. */
export function DeriveForm(props: Props) {
  const tools = useQuery({
    queryKey: ['configText'],
    queryFn: () => import('../../lib/configText'),
    staleTime: Number.POSITIVE_INFINITY,
  })
  return (
    <Modal opened onClose={props.onClose} size="xl" title={`${WORDS[props.kind].title} ${props.item.name}`}>
      <QueryBoundary query={tools}>{(found) => <Editor {...props} tools={found} />}</QueryBoundary>
    </Modal>
  )
}

function Editor({ item, kind, onClose, tools }: Props & { tools: Tools }) {
  const navigate = useNavigate()
  const begun = useMemo(() => tools.written(item.config), [tools, item.config])
  const [text, setText] = useState(begun)
  const [trust, setTrust] = useState(false)
  const [refusal, setRefusal] = useState<Marked[]>([])
  const read = useMemo(() => tools.parsed(text), [tools, text])
  const notes = useMemo(() => tools.differences(text), [tools, text])
  const changed = useMemo(() => tools.overrides(item.config, read.config), [tools, item.config, read.config])
  const derive = useMutation({
    mutationFn: () =>
      answered(
        api.POST(`/api/v1/experiments/{experiment_id}/${kind}`, {
          params: { path: { experiment_id: item.id } },
          body: { overrides: changed, trust },
        }),
      ),
    onSuccess: ({ id, rungs, warnings }) => {
      onClose()
      // Its page tells of them: only what is recorded has its rungs.
      void navigate({ to: '/experiments/$id', params: { id: String(id) }, state: { plan: { rungs, warnings } } })
    },
    onError: (error) => setRefusal(error instanceof Refused ? tools.placed(text, error.problems) : []),
  })
  const problems = useMemo(() => [...read.problems, ...refusal], [read.problems, refusal])
  const names = Object.keys(flat(changed))
  return (
    <Stack>
      <Text size="sm" c="dimmed">
        {WORDS[kind].about}
      </Text>
      <LazyCode
        text={text}
        label="Configuration to be edited"
        heightPx={HEIGHT_PX}
        language="yaml"
        problems={problems}
        onChange={(next) => {
          setText(next)
          setRefusal([])
          derive.reset()
        }}
      />
      {derive.error && problems.length === 0 && (
        <Alert color="red" role="alert">
          {derive.error.message}
        </Alert>
      )}
      <Problems text={text} problems={problems} />
      <SubmissionNotes warnings={notes} />
      {kind === 'continue' && (
        <Switch
          label="I trust the code that wrote these checkpoints, if it is another user's"
          checked={trust}
          onChange={(event) => setTrust(event.currentTarget.checked)}
        />
      )}
      <Group justify="space-between">
        <Text size="sm" c="dimmed">
          {names.length === 0 ? 'Nothing is changed.' : `Changed: ${names.join(', ')}`}
        </Text>
        <Group>
          <Button variant="default" onClick={onClose}>
            Close
          </Button>
          <Button loading={derive.isPending} disabled={read.problems.length > 0} onClick={() => derive.mutate()}>
            {WORDS[kind].act}
          </Button>
        </Group>
      </Group>
    </Stack>
  )
}
