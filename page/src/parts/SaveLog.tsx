import { Button, Text } from '@mantine/core'
import { useState } from 'react'
import { type LogSource, logPages } from '../api/logs'
import { fileName } from '../lib/csv'
import { type LogSearch, plain, savedLine } from '../lib/logSearch'
import { saveFile } from './saveFile'

/** Saves all lines that fit the search as a text file, from the first one on. */
export function SaveLog({ source, search }: { source: LogSource; search: LogSearch }) {
  const [state, setState] = useState<{ lines?: number; error?: string }>({})
  const save = async () => {
    const parts: string[] = []
    let lines = 0
    setState({ lines })
    try {
      for await (const page of logPages(source, search)) {
        parts.push(page.map((line) => `${savedLine({ ...line, text: plain(line.text) })}\n`).join(''))
        lines += page.length
        setState({ lines })
      }
      const of = 'trial' in source ? ['trial', source.trial] : ['experiment', source.experiment]
      saveFile(fileName([...of, 'log'], 'txt'), new Blob(parts, { type: 'text/plain;charset=utf-8' }))
      setState({})
    } catch (error) {
      setState({ error: error instanceof Error ? error.message : String(error) })
    }
  }
  return (
    <>
      <Button size="compact-sm" variant="default" loading={state.lines !== undefined} onClick={() => void save()}>
        Save log
      </Button>
      {state.lines !== undefined && (
        <Text size="sm" c="dimmed" role="status">
          {state.lines.toLocaleString('en')} lines
        </Text>
      )}
      {state.error && (
        <Text size="sm" c="red" role="alert">
          {state.error}
        </Text>
      )}
    </>
  )
}
