import { Text } from '@mantine/core'
import type { Marked } from '../lib/configText'

/** As the gateway answers, before a submission and after one. */
export interface Plan {
  rungs?: string
  warnings?: readonly string[]
}

/** What the search will do, and what is allowed and may not be what was meant. */
export function SubmissionNotes({ rungs, warnings }: Plan) {
  return (
    <>
      {rungs && <Text size="sm">Rungs: {rungs}</Text>}
      {warnings?.map((one) => (
        <Text key={one} size="sm" c="orange.8" role="status">
          {one}
        </Text>
      ))}
    </>
  )
}

/** What is wrong with a configuration, by its line. */
export function Problems({ text, problems }: { text: string; problems: readonly Marked[] }) {
  return problems.map((one) => (
    <Text key={`${one.from} ${one.message}`} size="sm" c="red" role="alert">
      Line {text.slice(0, one.from).split('\n').length}: {one.message}
    </Text>
  ))
}
