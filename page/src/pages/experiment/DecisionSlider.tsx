import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { moments } from '../../api/queries'
import { QueryBoundary } from '../../parts/QueryBoundary'
import { TimeSlider } from '../../parts/TimeSlider'

const route = getRouteApi('/experiments/$id')

/** The time slider over the search's decisions. It stands outside of what it moves, which is asked for anew at each moment. */
export function DecisionSlider({ id }: { id: number }) {
  const { at } = route.useSearch()
  const navigate = route.useNavigate()
  const query = useQuery(moments(id, 'decisions'))
  return (
    <QueryBoundary query={query}>
      {(events) => (
        <TimeSlider
          events={events}
          at={at}
          onChange={(next) => navigate({ search: (before) => ({ ...before, at: next }), replace: true })}
        />
      )}
    </QueryBoundary>
  )
}
