import { getRouteApi } from '@tanstack/react-router'
import type { CompareSearch } from '../../lib/compareSearch'

const route = getRouteApi('/compare')

/** Changes what the URL keeps of this page. */
export function useChange() {
  const navigate = route.useNavigate()
  return (changed: Partial<CompareSearch>) =>
    navigate({ search: (before) => ({ ...before, ...changed }), replace: true })
}
