"""Which pools lend their free slots: those that no trial of their own could use them in."""

from __future__ import annotations

from collections.abc import Callable

from tenuto.services.scheduler.policies.placement import Ground
from tenuto.services.scheduler.state import Experiment, Pool, State

OWN_LOOKED_AT_MAX = 100
"""Experiments that wait in a pool that may lend: of more than that, one can surely use its slots."""


class Lenders:
    """During one pass."""

    def __init__(self, state: State, quota_left: Callable[[str], int | None]) -> None:
        """`quota_left`: slots that an owner may use in addition; None: any number."""
        self._state, self._quota_left = state, quota_left
        self._grounds: dict[str, Ground | None] = {}

    def ground(self, name: str) -> Ground | None:
        """The pool's free slots; None where it lends none."""
        if name not in self._grounds:
            pool = self._state.pools.get(name)
            self._grounds[name] = None if pool is None or self._wanted(pool) else Ground(self._state, pool)
        return self._grounds[name]

    def _wanted(self, pool: Pool) -> bool:
        """Whether a trial of its own waits for its slots, and not only because of a limit or its size."""
        first = [self._state.experiments[entry[2]] for entry in pool.queue[:OWN_LOOKED_AT_MAX]]
        return len(pool.queue) > len(first) or any(self._can_use(pool, experiment) for experiment in first)

    def _can_use(self, pool: Pool, experiment: Experiment) -> bool:
        wanted = experiment.slots_per_trial
        if wanted > pool.capacity:
            return False
        left = [self._quota_left(owner) for owner in experiment.owners] if self._state.shares else []
        if experiment.max_slots is not None:
            left.append(experiment.max_slots - experiment.slots_used)
        return all(most is None or wanted <= most for most in left)
