import { Table, UnstyledButton } from '@mantine/core'
import type { ReactTable, Row, RowData, TableFeatures } from '@tanstack/react-table'
import { useVirtualizer } from '@tanstack/react-virtual'
import { memo, type ReactElement, useRef } from 'react'

const ROW_PX = 40
const OVERSCAN_ROWS = 12

export interface Sort {
  by: string
  descending: boolean
}

interface Props<F extends TableFeatures, T extends RowData> {
  table: ReactTable<F, T>
  label: string
  sort: Sort
  onSort: (sort: Sort) => void
  /** Whether a column can be sorted by. */
  sortable: (column: string) => boolean
  heightPx?: number
  empty: string
}

/** A table that draws only the rows in view, so that thousands scroll smoothly. */
export function DataTable<F extends TableFeatures, T extends RowData>(props: Props<F, T>) {
  const { table, sort, onSort } = props
  const scroll = useRef<HTMLDivElement>(null)
  const rows = table.getRowModel().rows
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW_PX,
    overscan: OVERSCAN_ROWS,
  })
  const items = virtual.getVirtualItems()
  const before = items[0]?.start ?? 0
  const after = virtual.getTotalSize() - (items.at(-1)?.end ?? 0)
  return (
    <section
      ref={scroll}
      style={{ overflow: 'auto', maxHeight: props.heightPx ?? 640 }}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: who has no mouse scrolls a region by the keyboard
      tabIndex={0}
      aria-label={props.label}
    >
      <Table stickyHeader highlightOnHover aria-rowcount={rows.length}>
        <Table.Thead>
          {table.getHeaderGroups().map((group) => (
            <Table.Tr key={group.id}>
              {group.headers.map((header) => {
                const column = header.column.id
                const sorted = sort.by === column
                return (
                  <Table.Th
                    key={header.id}
                    style={{ whiteSpace: 'nowrap' }}
                    aria-sort={sorted ? (sort.descending ? 'descending' : 'ascending') : 'none'}
                  >
                    {props.sortable(column) ? (
                      <UnstyledButton
                        fz="sm"
                        fw={600}
                        onClick={() => onSort({ by: column, descending: sorted && !sort.descending })}
                      >
                        <table.FlexRender header={header} />
                        {sorted ? (sort.descending ? ' ↓' : ' ↑') : ''}
                      </UnstyledButton>
                    ) : (
                      <table.FlexRender header={header} />
                    )}
                  </Table.Th>
                )
              })}
            </Table.Tr>
          ))}
        </Table.Thead>
        <Table.Tbody>
          {before > 0 && <tr style={{ height: before }} />}
          {items.map((item) => {
            const row = rows[item.index]
            return (
              row && <Drawn key={row.id} row={row} index={item.index} columns={table.options.columns} table={table} />
            )
          })}
          {after > 0 && <tr style={{ height: after }} />}
          {rows.length === 0 && (
            <Table.Tr>
              <Table.Td colSpan={99} c="dimmed" ta="center" py="xl">
                {props.empty}
              </Table.Td>
            </Table.Tr>
          )}
        </Table.Tbody>
      </Table>
    </section>
  )
}

interface DrawnProps<F extends TableFeatures, T extends RowData> {
  row: Row<F, T>
  index: number
  table: ReactTable<F, T>
  /** New columns draw a row anew. */
  columns: unknown
}

/** A row that stays as it was drawn while others come into view. */
const Drawn = memo(
  function Drawn<F extends TableFeatures, T extends RowData>({ row, index, table }: DrawnProps<F, T>) {
    return (
      <Table.Tr style={{ height: ROW_PX }} aria-rowindex={index + 1}>
        {row.getAllCells().map((cell) => (
          <Table.Td key={cell.id} style={{ whiteSpace: 'nowrap' }}>
            <table.FlexRender cell={cell} />
          </Table.Td>
        ))}
      </Table.Tr>
    )
  },
  (before, now) =>
    before.row.original === now.row.original && before.index === now.index && before.columns === now.columns,
) as <F extends TableFeatures, T extends RowData>(props: DrawnProps<F, T>) => ReactElement
