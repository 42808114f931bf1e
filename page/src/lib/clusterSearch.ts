/** What the page of the cluster keeps in the URL: the part of time that is shown, the experiment that is picked out, the moment. */

export interface ClusterSearch {
  /** Microseconds since 1970. */
  from?: number | undefined
  until?: number | undefined
  experiment?: number | undefined
  /** Position of the log that is shown instead of now. */
  at?: number | undefined
}

/** Takes what it knows of a URL's search, of the right kind, and leaves out the rest. */
export function clusterSearch(raw: Record<string, unknown>): ClusterSearch {
  const found: ClusterSearch = {}
  const { from, until, experiment, at } = raw
  if (typeof from === 'number' && typeof until === 'number' && from >= 0 && until > from)
    Object.assign(found, { from, until })
  if (Number.isInteger(experiment) && Number(experiment) > 0) found.experiment = Number(experiment)
  if (Number.isInteger(at) && Number(at) > 0) found.at = Number(at)
  return found
}
