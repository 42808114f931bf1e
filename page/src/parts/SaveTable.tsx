import { Button } from '@mantine/core'
import { type CsvCell, csvOf, fileName } from '../lib/csv'
import { saveCsv } from './saveFile'

interface Props {
  /** Words of the file's name. */
  name: readonly (string | number)[]
  header: readonly string[]
  /** Asked for when the file is wanted. */
  rows: () => CsvCell[][]
}

/** Saves a table as CSV, with all digits. */
export function SaveTable({ name, header, rows }: Props) {
  return (
    <Button
      size="compact-xs"
      variant="default"
      aria-label={`Save ${name.join(' ')} as CSV`}
      onClick={() => saveCsv(fileName(name, 'csv'), csvOf(header, rows()))}
    >
      CSV
    </Button>
  )
}
