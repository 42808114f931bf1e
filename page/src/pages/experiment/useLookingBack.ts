import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import type { ExperimentDetail } from '../../api/openapi'
import { usePastExperiment } from '../../api/past'
import { moments } from '../../api/queries'
import { type ExperimentSearch, hasMoments } from '../../lib/experimentSearch'

/** The experiment at the moment that the address names. Its moments are read when somebody first looks back. */
export function useLookingBack(item: ExperimentDetail, search: ExperimentSearch) {
  const [opened, open] = useState(false)
  const at = hasMoments(search.tab) ? search.at : undefined
  useEffect(() => {
    if (at !== undefined) open(true) // the slider stays when it comes to now
  }, [at])
  const list = useQuery({ ...moments(item.id, 'all'), enabled: opened || at !== undefined })
  const curves = search.tab === undefined || search.tab === 'curves'
  const query = usePastExperiment(item.id, at, curves)
  const past = at === undefined ? undefined : query.data
  return { at, list, query, past, opened: opened || at !== undefined, open: () => open(true) }
}
