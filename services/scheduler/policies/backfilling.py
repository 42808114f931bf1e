"""Reservations and backfill.

A held gang has a reserved start where the ends of enough running gangs are expected (`resources.expected_seconds`). Gangs
behind it may start before it if they are expected to end by then, or use only slots that it leaves over (EASY backfilling:
Lifka, The ANL/IBM SP scheduling system, 1995). One that runs longer than it said is preempted when the held gang needs its slots.

Several gangs may be held, each at a priority of its own. What starts behind them delays none of those that could not have its
slots back; a later promise reckons with the slots of the earlier ones and replaces none.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.ids import trial_id
from tenuto.schemas.sentences.waiting import Behind
from tenuto.services.scheduler.policies.aside import Promise, RoomsAside
from tenuto.services.scheduler.policies.placement import for_trial
from tenuto.services.scheduler.policies.planner import Reserved
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.policies.staying import gives_way
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Experiment, Pool, State
from tenuto.services.scheduler.state.usable import slots_coming_back

BACKFILL_LOOKED_AT_MAX = 500
"""Experiments behind a held gang that are tried: bounds a pass over a long queue."""


class Backfilling(RoomsAside):
    # What a policy says.

    def reachable(self, experiment: Experiment, missing: int) -> Mapping[str, int]:
        """Allocation -> slots that it would give up for this experiment at once; no more of them than make up `missing`."""
        return {}

    def overdue(self) -> list[Candidate]:
        """Gangs that started ahead of a held one and run longer than they said."""
        found = []
        for until_us, item in self.pool.backfilled:
            if until_us > self.now_us:
                break
            allocation = self.state.allocations[item]
            freed = self.comes_back(allocation)
            experiment = self.state.experiments[allocation.experiment_id]
            if item not in self.taken and freed and gives_way(experiment, allocation):
                found.append(Candidate(allocation, freed, 0))
        return found

    def reserve(self, experiment: Experiment) -> None:
        """The start that the held gang is promised; None where the ends of too few running gangs are known."""
        self.reserved = self.reserved_for(experiment)
        self.promises.append(Promise(experiment, self.reserved))

    def reserved_for(self, experiment: Experiment) -> Reserved | None:
        closed = self.close_lent(experiment)
        reserved = self._reserved_for(experiment)
        self.open_lent(closed)
        return reserved

    def _reserved_for(self, experiment: Experiment) -> Reserved | None:
        wanted = experiment.slots_per_trial
        count = self.available() + self.leaving
        reached = self.reachable(experiment, wanted - count)
        count += sum(reached.values())
        for time_us, slots, trial in heapq.merge(self._ends(reached), self._changes()):
            count += slots
            if slots > 0 and count >= wanted:
                return Reserved(max(time_us, self.now_us), count - wanted, trial)
        return None

    def _ends(self, reached: Mapping[str, int]) -> Iterator[tuple[int, int, str]]:
        """(expected end, slots that can be used again then, trial), in order. `reached`: slots that are counted already."""
        for end_us, item in self.pool.ends:
            if item not in self.taken:
                allocation = self.state.allocations[item]
                slots = slots_coming_back(self.state, self.pool, allocation) - reached.get(item, 0)
                slots -= self.waited_for(allocation, end_us)
                yield end_us, max(0, slots), trial_id(allocation.experiment_id, allocation.trial_number)

    def _changes(self) -> list[tuple[int, int, str]]:
        """The same of what this pass decides: gangs that it starts end, and held ones start when it is promised to them."""
        found = self.changes_aside()
        for draft in self.drafts:
            if isinstance(draft, AllocationGranted) and draft.pool == self.pool.name:
                expected_us = self.state.experiments[draft.experiment_id].expected_us
                if expected_us is not None:
                    slots = sum(len(part.slot_ids) for part in draft.slots)
                    found.append((self.now_us + expected_us, slots, draft.trial_id))
        for promise in self.promises:
            gang, reserved = promise.experiment, promise.reserved
            if reserved is not None:
                found.append((reserved.start_us, -gang.slots_per_trial, ""))
                if gang.expected_us is not None:
                    trial = trial_id(gang.experiment_id, gang.waiting[0])
                    found.append((reserved.start_us + gang.expected_us, gang.slots_per_trial, trial))
        return sorted(found)

    def may_backfill(self, experiment: Experiment) -> bool:
        """Whether a start is promised to all held gangs that it could delay."""
        return all(item.reserved is not None for item in self.promises if self.bound_by(experiment, item))

    def backfill(self, experiment: Experiment) -> None:
        """Start what it can of an experiment behind the held gang without delaying that one."""
        used = experiment.slots_used
        for number in experiment.waiting:
            if self.over_limit(experiment, used):
                return
            lent = for_trial(experiment, number)
            closed = self.close_lent(experiment)
            started = self._backfill_one(experiment, number, used)
            self.open_lent(closed)
            if not started and not self.borrow(lent, number, used):
                self.note(experiment, Behind(**gang(experiment)))
                return
            used += self.size

    def _backfill_one(self, experiment: Experiment, number: int, used: int) -> bool:
        experiment = for_trial(experiment, number)
        free, wanted = self.available(), experiment.slots_per_trial
        if (wanted > free and not self.may_be_beside()) or not self.may_backfill(experiment):
            return False
        end_us = None if experiment.expected_us is None else self.now_us + experiment.expected_us
        first: Reserved | None = None
        """The earliest start that it must not delay by running longer than it says."""
        beside: list[Promise] = []
        """Those beside which it runs."""
        for promise in self.promises:
            reserved = promise.reserved
            if reserved is None or not self.bound_by(experiment, promise):
                continue
            if end_us is not None and end_us <= reserved.start_us:
                first = reserved if first is None else min(first, reserved)
            elif wanted <= reserved.extra:
                beside.append(promise)
            else:
                return False
        slots = None if self.claimed else self.ground.take(experiment.constraints, wanted)
        if slots is None:
            found = None if self.claimed else self.take_beside(experiment, wanted)
            if found is None:
                return False
            slots, free, other = found
            first = min((item for item in (first, other) if item is not None), default=None)
        self.grant(experiment, number, used, slots, free, backfill=first)
        for promise in beside:
            assert promise.reserved is not None
            promise.reserved = promise.reserved._replace(extra=promise.reserved.extra - wanted)
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
