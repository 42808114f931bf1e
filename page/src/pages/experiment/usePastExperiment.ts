import { useQuery } from '@tanstack/react-query'
import { useEffect, useMemo, useState } from 'react'
import type { ExperimentDetail } from '../../api/openapi'
import { story } from '../../api/queries'
import { type ExperimentSearch, hasMoments } from '../../lib/experimentSearch'
import { experimentAt, type Past } from '../../lib/pastExperiment'

/** The experiment at the moment that the address names, from the log alone. It is read when somebody first looks back. */
export function usePastExperiment(item: ExperimentDetail, search: ExperimentSearch) {
  const [opened, open] = useState(false)
  const at = hasMoments(search.tab) ? search.at : undefined
  useEffect(() => {
    if (at !== undefined) open(true) // the slider stays when it comes to now
  }, [at])
  const query = useQuery({ ...story(item.id), enabled: opened || at !== undefined })
  const past = useMemo(
    () => (at === undefined || query.data === undefined ? undefined : experimentAt(query.data, at)),
    [at, query.data],
  )
  return { at, query, past, opened: opened || at !== undefined, open: () => open(true) }
}

/** The experiment with what differed then; what it was named and configured is what it is now. */
export function itemThen(item: ExperimentDetail, past: Past): ExperimentDetail {
  const { state, ended_us, error, best_trial_id, best_metric, priority, pool, max_trials } = past
  const known = { ended_us, error, best_trial_id, priority, pool, max_trials }
  const metric = best_metric as ExperimentDetail['best_metric']
  return { ...item, ...known, best_metric: metric, state: state as ExperimentDetail['state'] }
}
