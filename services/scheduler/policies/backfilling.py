"""Reservations and backfill.

A held gang has a reserved start where the ends of enough running gangs are expected (`resources.expected_seconds`). Gangs
behind it may start before it if they are expected to end by then, or use only slots that it leaves over (EASY backfilling:
Lifka, The ANL/IBM SP scheduling system, 1995). One that runs longer than it said is preempted when the held gang needs its slots.
"""

from __future__ import annotations

from bisect import bisect_left

from tenuto.schemas.ids import trial_id
from tenuto.services.scheduler.policies import words
from tenuto.services.scheduler.policies.planner import Reserved, for_trial
from tenuto.services.scheduler.policies.rooms import Rooms
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Experiment, Pool, State, slots_coming_back

BACKFILL_LOOKED_AT_MAX = 500
"""Experiments behind a held gang that are tried: bounds a pass over a long queue."""


class Backfilling(Rooms):
    def overdue(self) -> list[Candidate]:
        """Gangs that started ahead of a held one and run longer than they said."""
        found = []
        for until_us, item in self.pool.backfilled:
            if until_us > self.now_us:
                break
            allocation = self.state.allocations[item]
            freed = slots_coming_back(self.state, self.pool, allocation)
            if item not in self.taken and freed and self.state.experiments[allocation.experiment_id].preemptible:
                found.append(Candidate(allocation, freed, 0))
        return found

    def reserve(self, experiment: Experiment) -> None:
        """The start that the held gang is promised; None where the ends of too few running gangs are known."""
        self.reserved = self.reserved_for(experiment.slots_per_trial)

    def reserved_for(self, wanted: int) -> Reserved | None:
        count = self.available() + self.leaving
        for end_us, item in self.pool.ends:
            if item in self.taken:
                continue
            allocation = self.state.allocations[item]
            count += slots_coming_back(self.state, self.pool, allocation)
            if count >= wanted:
                trial = trial_id(allocation.experiment_id, allocation.trial_number)
                return Reserved(max(end_us, self.now_us), count - wanted, trial)
        return None

    def backfill(self, experiment: Experiment) -> None:
        """Start what it can of an experiment behind the held gang without delaying that one."""
        used = experiment.slots_used
        for number in experiment.waiting:
            if self.over_limit(experiment, used):
                return
            lent = for_trial(experiment, number)
            if not self._backfill_one(experiment, number, used) and not self.borrow(lent, number, used):
                self.note(experiment, words.behind(experiment))
                return
            used += self.size

    def _backfill_one(self, experiment: Experiment, number: int, used: int) -> bool:
        experiment = for_trial(experiment, number)
        reserved, before, wanted = self.reserved, self.available(), experiment.slots_per_trial
        if reserved is None or wanted > before:
            return False
        ends = experiment.expected_us is not None and self.now_us + experiment.expected_us <= reserved.start_us
        slots = self.ground.take(experiment.constraints, wanted) if ends or wanted <= reserved.extra else None
        if slots is None:
            return False
        self.grant(experiment, number, used, slots, before, backfill=reserved if ends else None)
        if not ends:
            self.reserved = reserved._replace(extra=reserved.extra - wanted)
        return True

    def may_borrow(self) -> bool:
        """Some experiment in the queue has a fallback pool."""
        return may_borrow(self.state, self.pool)


def may_borrow(state: State, pool: Pool) -> bool:
    """Some experiment that waits in the pool has a fallback pool."""
    for name in sorted(state.pools):
        lends = state.pools[name].lends_to
        at = bisect_left(lends, (pool.name, 0))
        if at < len(lends) and lends[at][0] == pool.name:
            return True
    return False
