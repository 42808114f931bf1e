import { Alert, Button, Group, Select, Stack, Text } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { Refused } from '../../api/client'
import { newKey, preview, submit, templates, workspaces } from '../../api/submitting'
import { configsOf } from '../../lib/chosenFiles'
import type { Tree } from '../../lib/configText'
import { NotPacked, packed } from '../../lib/packing'
import { LazyCode } from '../../parts/LazyCode'
import { Problems, SubmissionNotes } from '../../parts/SubmissionNotes'
import { Files, type Model } from './Files'

type Tools = typeof import('../../lib/configText')

const HEIGHT_PX = 440
const PAUSE_MS = 500
/** The configuration is judged when nobody has typed for so long. */
const CREATES = 'experiment.create'
const BEGUN = `name: my-experiment
entrypoint: model_def:MyTrial
hyperparameters:
  learning_rate: { type: log, minval: -4, maxval: -1 }
searcher:
  name: random
  metric: loss
  max_trials: 4
  max_length: { epochs: 1 }
`

export function NewForm({ bytesMax, tools }: { bytesMax: number; tools: Tools }) {
  const client = useQueryClient()
  const navigate = useNavigate()
  const [model, setModel] = useState<Model>()
  const [text, setText] = useState(BEGUN)
  const [key, setKey] = useState(newKey)
  const [step, setStep] = useState('')
  const read = useMemo(() => tools.parsed(text), [tools, text])
  const [settled] = useDebouncedValue(text, PAUSE_MS)
  const judged = useQuery({ ...preview(settled), enabled: settled === text && read.problems.length === 0 })
  const sending = useMutation({
    mutationFn: async () => {
      setStep('Packing the files ...')
      const context = await packed(model?.kept ?? [], bytesMax)
      setStep('Sending it ...')
      return submit(text, context, key)
    },
    onSuccess: ({ id }) => {
      void client.invalidateQueries({ queryKey: ['experiments'] })
      void navigate({ to: '/experiments/$id', params: { id: String(id) } })
    },
    onError: (error) => {
      // What was refused is not on record; what was cut off may be, and is sent again as the same.
      if (error instanceof Refused || error instanceof NotPacked) setKey(newKey())
    },
    onSettled: () => setStep(''),
  })
  const change = (next: string) => {
    setText(next)
    setKey(newKey())
    sending.reset()
  }
  const refusal = sending.error ?? (settled === text ? judged.error : null)
  const problems = useMemo(() => {
    const told = refusal instanceof Refused ? tools.placed(text, refusal.problems) : []
    return [...read.problems, ...told]
  }, [read.problems, refusal, tools, text])
  const alone = refusal !== null && problems.length === 0 ? refusal.message : ''
  const forbidden = settled === text && judged.data !== undefined ? judged.data.refused : ''
  return (
    <Stack>
      <Files
        model={model}
        bytesMax={bytesMax}
        onChange={(next) => {
          setModel(next)
          setKey(newKey())
          sending.reset()
          const [first] = configsOf(next.all)
          if (text === BEGUN && first !== undefined) void first.file.text().then(change)
        }}
      />
      <Choices model={model} text={text} config={read.config} tools={tools} onChange={change} />
      <LazyCode
        text={text}
        label="Configuration"
        heightPx={HEIGHT_PX}
        language="yaml"
        problems={problems}
        onChange={change}
      />
      <Problems text={text} problems={problems} />
      {settled === text && problems.length === 0 && <SubmissionNotes {...judged.data} />}
      {(alone || forbidden) && (
        <Alert color="red" role="alert">
          {alone || forbidden}
        </Alert>
      )}
      <Group justify="space-between">
        <Text size="sm" c="dimmed" role="status">
          {step ||
            (settled === text && judged.isSuccess && problems.length === 0 && forbidden === ''
              ? 'The configuration is valid.'
              : '')}
        </Text>
        <Button
          loading={sending.isPending}
          disabled={model === undefined || model.refusal !== '' || read.problems.length > 0}
          onClick={() => sending.mutate()}
        >
          Submit
        </Button>
      </Group>
    </Stack>
  )
}

interface ChoicesProps {
  model: Model | undefined
  text: string
  config: Tree
  tools: Tools
  onChange: (text: string) => void
}

/** What writes into the configuration: one of the directory's files, a workspace, a template. */
function Choices({ model, text, config, tools, onChange }: ChoicesProps) {
  const resources = (config.resources ?? {}) as Tree
  const workspace = typeof resources.workspace === 'string' ? resources.workspace : ''
  const places = useQuery(workspaces()).data ?? []
  const open = places.filter((one) => !one.archived && one.permissions.includes(CREATES)).map((one) => one.name)
  const found = useQuery(templates(workspace || 'default')).data ?? []
  const named = [...new Set(found.map((one) => one.name).filter((name) => name !== ''))]
  const template = typeof config.template === 'string' ? config.template : null
  const configs = configsOf(model?.all ?? [])
  const set = (path: string[]) => (value: string | null) => onChange(tools.withSetting(text, path, value ?? undefined))
  return (
    <Group align="flex-end">
      <Select
        label="Begin with the file"
        placeholder={configs.length === 0 ? 'no YAML file there' : 'choose'}
        disabled={configs.length === 0}
        data={configs.map(({ path }) => path)}
        value={null}
        onChange={(path) => {
          const file = configs.find((one) => one.path === path)?.file
          if (file !== undefined) void file.text().then(onChange)
        }}
      />
      <Select
        label="Workspace"
        placeholder="default"
        clearable
        data={open}
        value={workspace || null}
        onChange={set(['resources', 'workspace'])}
      />
      <Select
        label="Template"
        placeholder={named.length === 0 ? 'there is none' : 'none'}
        clearable
        disabled={named.length === 0 && template === null}
        data={template === null || named.includes(template) ? named : [...named, template]}
        value={template}
        onChange={set(['template'])}
      />
    </Group>
  )
}
