import { expect, it } from 'vitest'
import { COMPUTED_SECONDS, patienceSeconds, USUAL_SECONDS } from './patience'

it.each([
  ['/api/v1/experiments/3/importance', COMPUTED_SECONDS],
  ['/api/v1/pools/default/what-if?agents=2', COMPUTED_SECONDS],
  ['/api/v1/experiments/3', USUAL_SECONDS],
  ['/api/v1/experiments?name=importance', USUAL_SECONDS],
])('%s is given up after %d seconds', (path, seconds) => {
  expect(patienceSeconds(`http://127.0.0.1:8080${path}`)).toBe(seconds)
})
