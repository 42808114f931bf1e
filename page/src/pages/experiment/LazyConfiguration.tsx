import { useQuery } from '@tanstack/react-query'
import { exactText } from '../../lib/exactJson'
import { LazyCode } from '../../parts/LazyCode'
import { QueryBoundary } from '../../parts/QueryBoundary'

const HEIGHT_PX = 600

/** The configuration as YAML. The library for it is loaded when it is first needed. */
export function LazyConfiguration({ config }: { config: Record<string, unknown> }) {
  const query = useQuery({
    queryKey: ['written', exactText(config)],
    queryFn: async () => (await import('../../lib/configText')).written(config),
    staleTime: Number.POSITIVE_INFINITY,
  })
  return (
    <QueryBoundary query={query}>
      {(text) => <LazyCode text={text} label="Configuration" heightPx={HEIGHT_PX} language="yaml" />}
    </QueryBoundary>
  )
}
