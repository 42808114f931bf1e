import { Button, Text } from '@mantine/core'
import { useState } from 'react'
import { type LogSource, logPages } from '../api/logs'
import { fileName } from '../lib/csv'
import { type LogSearch, plain, savedLine } from '../lib/logSearch'
import { saveFile } from './saveFile'

const CHARACTERS_MAX = 256 * 1024 * 1024
/** Of a saved log: a browser holds it in memory. */

/** Saves all lines that fit the search as a text file, from the first one on. */
export function SaveLog({ source, search }: { source: LogSource; search: LogSearch }) {
  const [state, setState] = useState<{ lines?: number; told?: string }>({})
  const save = async () => {
    const parts: string[] = []
    let [lines, characters, told] = [0, 0, '']
    setState({ lines })
    try {
      for await (const page of logPages(source, search)) {
        const part = page.map((line) => `${savedLine({ ...line, text: plain(line.text) })}\n`).join('')
        parts.push(part)
        lines += page.length
        characters += part.length
        setState({ lines })
        if (characters > CHARACTERS_MAX) {
          told = `The first ${lines.toLocaleString('en')} lines are saved; \`tenuto exp logs\` has all.`
          break
        }
      }
      const of = 'trial' in source ? ['trial', source.trial] : ['experiment', source.experiment]
      saveFile(fileName([...of, 'log'], 'txt'), new Blob(parts, { type: 'text/plain;charset=utf-8' }))
      setState(told === '' ? {} : { told })
    } catch (error) {
      setState({ told: error instanceof Error ? error.message : String(error) })
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
      {state.told && (
        <Text size="sm" c="red" role="alert">
          {state.told}
        </Text>
      )}
    </>
  )
}
