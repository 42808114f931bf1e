"""Pools that lend their free slots: those without a trial of their own that could use them, by starting or by growing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from tenuto.services.scheduler.policies.feasibility import first_coming
from tenuto.services.scheduler.policies.placement import Ground
from tenuto.services.scheduler.policies.targets import divided
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State, policy_of

OWN_LOOKED_AT_MAX = 100
"""Experiments that wait in a pool that may lend: of more than that, one can surely use its slots."""


class Lenders:
    """Lending pools during one pass."""

    def __init__(self, state: State, now_us: int, most: Callable[[Experiment, int, int], int]) -> None:
        """`most`: as in `Quotas`."""
        self._state, self._now_us, self._most = state, now_us, most
        self._grounds: dict[str, Ground | None] = {}

    def ground(self, name: str) -> Ground | None:
        """The pool's free slots; None if it lends none."""
        if name not in self._grounds:
            pool = self._state.pools.get(name)
            self._grounds[name] = None if pool is None or self._wanted(pool) else Ground(self._state, pool)
        return self._grounds[name]

    def _wanted(self, pool: Pool) -> bool:
        """True if a trial of its own waits for its slots, and not only because of a limit or its size."""
        first = [self._state.experiments[entry[2]] for entry in pool.queue[:OWN_LOOKED_AT_MAX]]
        if len(pool.queue) > len(first):
            return True
        waits = any(self._can_start(pool, experiment) for experiment in first)
        return waits or any(self._can_grow(pool, self._state.allocations[item]) for item in pool.elastic)

    def _can_grow(self, pool: Pool, allocation: Allocation) -> bool:
        experiment = self._state.experiments[allocation.experiment_id]
        wanted = experiment.open and experiment.trials[allocation.trial_number].phase == "wanted" and not experiment.waiting
        settled = allocation.leaving == "resized" or self._now_us - allocation.granted_us >= experiment.keep_us
        larger = allocation.size_soon < experiment.slots_most
        if experiment.pool != pool.name or not (wanted and settled and larger and self._can_use(pool, experiment, 1)):
            return False
        if policy_of(self._state, pool.name).name != "fair_share":
            return True
        share = divided(self._state, pool, self._now_us).targets.get(experiment.experiment_id, 0)
        return pool.held.get(experiment.experiment_id, 0) < share

    def _can_start(self, pool: Pool, experiment: Experiment) -> bool:
        wanted = experiment.slots_per_trial
        return self._can_use(pool, experiment, wanted) and first_coming(self._state, pool, experiment) is not None

    def _can_use(self, pool: Pool, experiment: Experiment, wanted: int) -> bool:
        return wanted <= pool.capacity and self._most(experiment, experiment.slots_used, wanted) == wanted


def may_borrow(state: State, pool: Pool) -> bool:
    """True if some experiment that waits in the pool has a fallback pool."""
    for name in sorted(state.pools):
        lends = state.pools[name].lends_to
        at = bisect_left(lends, (pool.name, 0))
        if at < len(lends) and lends[at][0] == pool.name:
            return True
    return False
