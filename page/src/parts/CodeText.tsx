import {
  autocompletion,
  type CompletionContext,
  type CompletionResult,
  completionKeymap,
} from '@codemirror/autocomplete'
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands'
import { python } from '@codemirror/lang-python'
import { yaml } from '@codemirror/lang-yaml'
import { bracketMatching, HighlightStyle, syntaxHighlighting } from '@codemirror/language'
import { lintGutter, setDiagnostics } from '@codemirror/lint'
import { Compartment, EditorState } from '@codemirror/state'
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import { useEffect, useRef } from 'react'
import schema from '../../../docs/reference/experiment-config.schema.json'
import { type Marked, parsed, type Tree } from '../lib/configText'
import { schemeColor } from '../lib/schemes'
import { offered, placeAt } from '../lib/settings'
import { useDark } from './useDark'

interface Props {
  text: string
  language: 'python' | 'yaml' | undefined
  label: string
  heightPx: number
  /** Called with each change; without it the text is only read. */
  onChange?: (text: string) => void
  /** Errors, shown at their places. */
  problems?: readonly Marked[]
}

const COLORS = HighlightStyle.define([
  { tag: [tags.keyword, tags.bool, tags.null], color: schemeColor('code-keyword') },
  { tag: [tags.string, tags.special(tags.string)], color: schemeColor('code-text') },
  { tag: tags.number, color: schemeColor('code-number') },
  { tag: [tags.comment, tags.meta], color: schemeColor('code-comment') },
  {
    tag: [tags.definition(tags.propertyName), tags.propertyName, tags.function(tags.variableName)],
    color: schemeColor('code-name'),
  },
])

/** Settings that a configuration may have at the cursor, as one types, or asks with Ctrl and the space bar. */
function settings(context: CompletionContext): CompletionResult | null {
  const text = context.state.doc.toString()
  const place = placeAt(text, context.pos)
  if (place === undefined || (place.from === context.pos && !context.explicit)) return null
  // The line that is typed is seldom YAML yet.
  const line = context.state.doc.lineAt(context.pos)
  const { config } = parsed(text.slice(0, line.from) + text.slice(line.to))
  const found = offered(schema as Tree, config, place)
  if (found.length === 0) return null
  const colon = place.setting === undefined && !/^[ ]*:/.test(text.slice(context.pos, line.to)) ? ': ' : ''
  const options = found.map(({ name, detail, info }) => ({
    label: name,
    detail,
    type: colon ? 'property' : 'constant',
    apply: name + colon,
    ...(info && { info }),
  }))
  return { from: place.from, options, validFor: /^[A-Za-z0-9_]*$/ }
}

/** Code with its colours and line numbers, to be read or edited. Its own chunk: only pages that show code load it. */
export default function CodeText({ text, language, label, heightPx, onChange, problems }: Props) {
  const element = useRef<HTMLDivElement>(null)
  const view = useRef<EditorView | null>(null)
  const changed = useRef(onChange)
  changed.current = onChange
  const scheme = useRef(new Compartment())
  const dark = useDark()
  const editable = onChange !== undefined

  useEffect(() => {
    const parent = element.current
    if (parent === null) return
    const made = new EditorView({
      parent,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          bracketMatching(),
          keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap]),
          ...(language === 'python' ? [python()] : language === 'yaml' ? [yaml()] : []),
          ...(editable ? [highlightActiveLine(), lintGutter()] : []),
          ...(editable && language === 'yaml' ? [autocompletion({ override: [settings] })] : []),
          syntaxHighlighting(COLORS),
          scheme.current.of(EditorView.darkTheme.of(dark)),
          EditorState.readOnly.of(!editable),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) changed.current?.(update.state.doc.toString())
          }),
          EditorView.theme({
            '&': { height: `${heightPx}px`, fontSize: '13px' },
            '.cm-gutters': { backgroundColor: 'transparent', color: 'var(--mantine-color-dimmed)', border: 'none' },
            '.cm-content': { caretColor: 'var(--mantine-color-text)' },
            '.cm-cursor': { borderLeftColor: 'var(--mantine-color-text)' },
            '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'rgba(128, 128, 128, 0.12)' },
            '.cm-tooltip': {
              backgroundColor: 'var(--mantine-color-body)',
              color: 'var(--mantine-color-text)',
              border: '1px solid var(--mantine-color-default-border)',
            },
          }),
        ],
      }),
    })
    view.current = made
    return () => {
      made.destroy()
      view.current = null
    }
  }, [language, label, heightPx, editable])

  // The same editor in the other scheme, so that the cursor and what can be undone stay.
  useEffect(() => {
    view.current?.dispatch({ effects: scheme.current.reconfigure(EditorView.darkTheme.of(dark)) })
  }, [dark])

  useEffect(() => {
    const made = view.current
    if (made !== null && made.state.doc.toString() !== text)
      made.dispatch({ changes: { from: 0, to: made.state.doc.length, insert: text } })
  }, [text, language, editable])

  useEffect(() => {
    const made = view.current
    if (made === null || problems === undefined) return
    const length = made.state.doc.length
    const shown = problems.map(({ from, to, message }) => ({
      from: Math.min(from, length),
      to: Math.min(Math.max(from, to), length),
      severity: 'error' as const,
      message,
    }))
    made.dispatch(setDiagnostics(made.state, shown))
  }, [problems, language, editable])

  return (
    <div
      ref={element}
      style={{ border: '1px solid var(--mantine-color-default-border)', borderRadius: 'var(--mantine-radius-sm)' }}
    />
  )
}
