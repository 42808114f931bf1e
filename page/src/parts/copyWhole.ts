/** What is selected and copied has the values as they were recorded, not as few digits as are read at a glance. */
export function copyWhole(): void {
  document.addEventListener('copy', (event) => {
    const selection = window.getSelection()
    const within = selection?.anchorNode?.parentElement?.closest<HTMLElement>('[data-whole]')
    if (selection === null || selection.rangeCount === 0 || selection.isCollapsed) return
    if (within?.contains(selection.focusNode)) return given(event, within.dataset.whole ?? '')
    const selected = selection.getRangeAt(0).cloneContents()
    if (selected.querySelector('[data-whole]') === null) return
    const text = selection.toString()
    // Texts between the values stay as the browser writes them, with its tabs and line ends.
    let [from, whole] = [0, '']
    for (const value of selected.querySelectorAll<HTMLElement>('[data-whole]')) {
      const at = text.indexOf(value.textContent ?? '', from)
      if (at < 0) continue
      whole += text.slice(from, at) + (value.dataset.whole ?? '')
      from = at + (value.textContent ?? '').length
    }
    given(event, whole + text.slice(from))
  })
}

function given(event: ClipboardEvent, text: string): void {
  event.clipboardData?.setData('text/plain', text)
  event.preventDefault()
}
