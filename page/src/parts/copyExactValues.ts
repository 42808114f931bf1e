import { withWhole } from '../lib/exactText'

/** What is selected and copied has the values as they were recorded, not as few digits as are read at a glance. */
export function copyExactValues(): void {
  document.addEventListener('copy', (event) => {
    const selection = window.getSelection()
    const within = selection?.anchorNode?.parentElement?.closest<HTMLElement>('[data-whole]')
    if (selection === null || selection.rangeCount === 0 || selection.isCollapsed) return
    if (within?.contains(selection.focusNode)) return given(event, within.dataset.whole ?? '')
    const selected = selection.getRangeAt(0).cloneContents().querySelectorAll<HTMLElement>('[data-whole]')
    if (selected.length === 0) return
    const values = Array.from(selected, (one) => ({ shown: one.textContent ?? '', whole: one.dataset.whole ?? '' }))
    given(event, withWhole(selection.toString(), values))
  })
}

function given(event: ClipboardEvent, text: string): void {
  event.clipboardData?.setData('text/plain', text)
  event.preventDefault()
}
