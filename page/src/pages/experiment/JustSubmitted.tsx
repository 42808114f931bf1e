import { Alert } from '@mantine/core'
import { useRouterState } from '@tanstack/react-router'
import { SubmissionNotes } from '../../parts/SubmissionNotes'

/** What the gateway answered to the submission that led here. */
export function JustSubmitted() {
  const plan = useRouterState({ select: (state) => state.location.state.plan })
  if (!plan?.rungs && !plan?.warnings?.length) return null
  return (
    <Alert role="status" color={plan.warnings?.length ? 'yellow' : 'blue'} title="It is submitted">
      <SubmissionNotes {...plan} />
    </Alert>
  )
}
