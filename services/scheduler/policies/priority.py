"""Priority with preemption, and no starvation within a priority.

The most urgent are served first, and among equals in the order of `equals`, each as `planner` says. A gang may preempt
allocations of strictly lower priority. One that is held holds back the trials behind it at its own priority until it fits, so
that small gangs cannot starve a large one. Trials of lower priority may use the slots meanwhile, because they can be preempted.

Skipped, holding nobody back: experiments at their slot limit, and gangs larger than all usable slots of the pool. A gang that
must be on one agent or rack holds back only the one that is nearest to having its slots.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, SlotsReserved
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.ids import trial_id
from tenuto.schemas.sentences.grants import Reserves
from tenuto.schemas.sentences.waiting import Waiting
from tenuto.services.scheduler.policies.aside import Promise
from tenuto.services.scheduler.policies.backfilling import BACKFILL_LOOKED_AT_MAX
from tenuto.services.scheduler.policies.elastic import GUEST_RANK
from tenuto.services.scheduler.policies.equals import Equals
from tenuto.services.scheduler.policies.planner import Reserved
from tenuto.services.scheduler.policies.quotas import Quotas
from tenuto.services.scheduler.policies.reasons import OrderNumbers
from tenuto.services.scheduler.policies.staying import gives_way
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State
from tenuto.services.scheduler.state.slotsets import SlotSet, count


def plan(state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> list[EventData]:
    """Grants and preemptions that should happen now, in order. Empty when there is nothing to do."""
    return _Pass(state, pool, now_us, notes).plan() if pool.queue or pool.elastic else []


class _Pass(Quotas):
    policy = "priority"

    def __init__(self, state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> None:
        super().__init__(state, pool, now_us, notes)
        self._equals: Equals | None = None
        """Made when it is first needed: most passes have nothing to give."""
        self._served: dict[int, tuple[int, int]] = {}
        """Experiment -> how many of its waiting trials were served, and the slots that it has then."""
        self._waits_first = False
        """True: a gang of this priority has slots reserved."""
        self._beside = 0
        """How often only slots that are held aside were left."""

    @property
    def equals(self) -> Equals:
        if self._equals is None:
            self._equals = Equals(self.state, self.pool)
        return self._equals

    def serve_queue(self) -> None:
        queue = self.pool.queue
        lent = self.may_borrow()
        spared = self._spared()
        at = 0
        rigid_held = False
        while at < len(queue):
            level = queue[at][0]
            self.show_aside()
            if self._nothing_to_do(level, spared, lent):
                break
            held = self._serve_level(level, spared, lent, rigid_held)
            rigid_held = rigid_held or held
            at = bisect_left(queue, (level + 1, float("-inf"), 0))

    def _nothing_to_do(self, level: int, spared: int, lent: bool) -> bool:
        """Nothing to give and nobody to preempt, at this priority and further down."""
        if self.notes is not None or lent or self.available() > 0 or level <= spared or level < self.least_urgent():
            return False
        self._beside += 1
        return self._beside > BACKFILL_LOOKED_AT_MAX or not self.may_be_beside()

    def _serve_level(self, level: int, spared: int, lent: bool, rigid_held: bool) -> bool:
        """Serve those of one priority. True: one of them is held, and those behind it are with it."""
        self.equals.begin(level)
        self._waits_first = held = False
        looked_at = 0
        while (experiment := self.equals.next()) is not None:
            if self._nothing_to_do(level, spared, lent):
                break
            if held or (rigid_held and not experiment.preemptible):
                looked_at += 1
                hopeless = looked_at > BACKFILL_LOOKED_AT_MAX or not self.may_backfill(experiment)
                if self.notes is not None or lent or not hopeless:
                    done, used = self._served.get(experiment.experiment_id, (0, experiment.slots_used))
                    self.backfill(replace(experiment, waiting=experiment.waiting[done:], slots_used=used))
                elif held:
                    break
                self.equals.done(experiment)
            elif not self._serve_next(experiment):
                held = True
                self.reserve(experiment)
                self.equals.done(experiment)
        return held

    def _serve_next(self, experiment: Experiment) -> bool:
        """Serve the experiment's next waiting trial. False: it must wait, and those behind it at its priority with it."""
        key = experiment.experiment_id
        at, used = self._served.get(key, (0, experiment.slots_used))
        if at >= len(experiment.waiting):
            self.equals.done(experiment)
            return True
        number = experiment.waiting[at]
        outcome = self.serve(experiment, number, used)
        if outcome in ("granted", "soon"):
            self._served[key] = (at + 1, used + self.size)
            if outcome == "soon":
                self.equals.add(experiment, self.size)
                self._waits_first = self._waits_first or self.equals.has_reserved(experiment)
            return True
        if outcome in ("held", "aside"):
            self._reserve_slots(experiment, number, outcome)
        if outcome == "held":
            return False
        if outcome in ("never", "aside") and experiment.trials[number].excluded:
            self._served[key] = (at + 1, used)  # Another of its trials may go where this one failed.
            return True
        if outcome == "limit":
            self.kept_back(experiment, number, used)
        self.equals.done(experiment)
        return True

    def _reserve_slots(self, experiment: Experiment, number: int, outcome: str) -> None:
        """Remember that slots are kept for it, where other owners could be before it later. Of those with constraints, which hold
        nobody else back, one at a time."""
        if not self.equals.has_reserved(experiment) and (outcome == "held" or not self._waits_first):
            trial = trial_id(experiment.experiment_id, number)
            why = Reserves(priority=experiment.priority, slots_wanted=experiment.slots_per_trial, slots_free=self.available())
            self.drafts.append(
                SlotsReserved(pool=self.pool.name, trial_id=trial, experiment_id=experiment.experiment_id, reason=why.reason())
            )
        self._waits_first = True

    # What owners hold.

    def grant(
        self,
        experiment: Experiment,
        number: int,
        used: int,
        slots: tuple[AgentSlots, ...],
        free: int,
        *,
        pool: str = "",
        backfill: Reserved | None = None,
    ) -> None:
        super().grant(experiment, number, used, slots, free, pool=pool, backfill=backfill)
        self.equals.granted(experiment, 0 if pool else self.size)

    def preempt(
        self,
        experiment: Experiment,
        number: int,
        chosen: Sequence[Candidate],
        free: int,
        leaving: int,
        missing: int,
    ) -> None:
        super().preempt(experiment, number, chosen, free, leaving, missing)
        for victim in chosen:
            self.equals.add(self.state.experiments[victim.allocation.experiment_id], -victim.allocation.size)

    def _resize(self, allocation: Allocation, slots: SlotSet, reason: Reason) -> None:
        change = count(slots) - count(self.slots_soon(allocation))
        super()._resize(allocation, slots, reason)
        if self._equals is not None:
            self._equals.add(self.state.experiments[allocation.experiment_id], change)

    # Who gives way.

    def _spared(self) -> int:
        """The least urgent priority of trials that could give up slots; 0: none can."""
        least = 0
        for allocation in [self.state.allocations[item] for item in self.pool.elastic]:
            if self.surplus(allocation):
                other = self.state.experiments[allocation.experiment_id]
                least = max(least, GUEST_RANK if self.is_guest(other) else other.priority)
        return least

    def bound_by(self, experiment: Experiment, promise: Promise) -> bool:
        return not experiment.preemptible or experiment.priority <= promise.experiment.priority

    def gives_quota_back(self, experiment: Experiment, keeper: Experiment) -> bool:
        return experiment.preemptible and experiment.priority > keeper.priority and keeper.constraints is None

    def own_candidates(self, experiment: Experiment, owner: str) -> Sequence[Candidate]:
        found: list[Candidate] = []
        for rank, size, _, item in self.pool.victims:
            if -rank <= experiment.priority:
                break
            allocation = self.state.allocations[item]
            if item not in self.taken and owner in self.state.experiments[allocation.experiment_id].owners:
                found.append(Candidate(allocation, size, 100 + rank))
        return found

    def reachable(self, experiment: Experiment, missing: int) -> Mapping[str, int]:
        found = {item.allocation.allocation_id: item.freed for item in (*self.shrinkable(experiment), *self._overdue(experiment))}
        total = sum(found.values())
        for rank, _, _, item in self.pool.victims:
            if total >= missing or -rank <= experiment.priority:
                break
            if item not in self.taken:
                total -= found.get(item, 0)
                found[item] = self.comes_back(self.state.allocations[item])
                total += found[item]
        return found

    def _overdue(self, experiment: Experiment) -> list[Candidate]:
        """Those of its own priority."""
        experiments = self.state.experiments
        return [item for item in self.overdue() if experiments[item.allocation.experiment_id].priority == experiment.priority]

    def gives_up(self, experiment: Experiment, other: Experiment) -> bool:
        return other.priority >= experiment.priority

    def growth_rank(self, experiment: Experiment) -> int:
        return experiment.priority

    def least_urgent(self) -> int:
        """The priority of the least urgent allocation that may be preempted; 0: there is none."""
        if self.pool.backfilled and self.pool.backfilled[0][0] <= self.now_us:
            return 100
        return next((-entry[0] for entry in self.pool.victims if entry[3] not in self.taken), 0)

    def order(self, experiment: Experiment) -> OrderNumbers:
        return {"priority": experiment.priority}

    def rank(self, experiment: Experiment, allocation: Allocation) -> int | None:
        other = self.state.experiments[allocation.experiment_id]
        if not gives_way(other, allocation):
            return None
        if other.priority > experiment.priority:
            return 100 - other.priority
        until_us = allocation.backfill_until_us
        return 0 if until_us is not None and until_us <= self.now_us and other.priority == experiment.priority else None

    def givers(self, experiment: Experiment) -> list[str]:
        less_urgent = bisect_left(self.pool.victims, (-experiment.priority,))
        overdue = [candidate.allocation.allocation_id for candidate in self.overdue()]
        return [*overdue, *(entry[3] for entry in self.pool.victims[:less_urgent] if entry[3] not in overdue)]

    def candidates(self, experiment: Experiment, missing: int) -> Sequence[Candidate]:
        """Of each priority and size the latest saved or granted, as many as could be needed. Those with slots that were closed
        meanwhile free less than others of their size, so they do not count for that."""
        victims = self.pool.victims
        found = self._overdue(experiment)
        at, total = 0, sum(item.freed for item in found)
        while at < len(victims) and -victims[at][0] > experiment.priority:
            rank, size = victims[at][:2]
            freed = 0
            while at < len(victims) and victims[at][:2] == (rank, size) and freed < missing:
                allocation = self.state.allocations[victims[at][3]]
                at += 1
                if allocation.allocation_id in self.taken:
                    continue
                count = self.comes_back(allocation)
                if count:
                    found.append(Candidate(allocation, count, 100 + rank))
                    freed += count if count == size else 0
                    total += count
            at = max(at, bisect_left(victims, (rank, size + 1)))
        return found if total >= missing else ()

    def all_candidates(self, experiment: Experiment, missing: int, given: Mapping[str, int]) -> Sequence[Candidate]:
        """As `candidates`, but those of one priority and size may add more or less."""
        found: list[Candidate] = []
        added: dict[tuple[int, int, int], int] = {}
        for rank, size, _, item in self.pool.victims:
            if -rank <= experiment.priority:
                break
            key = (rank, size, size - given.get(item, 0))
            if item in self.taken or added.get(key, 0) >= missing:
                continue
            allocation = self.state.allocations[item]
            freed = self.comes_back(allocation)
            if freed:
                found.append(Candidate(allocation, freed, 100 + rank))
                added[key] = added.get(key, 0) + (max(0, freed - given.get(item, 0)) if freed == size else 0)
        return self._overdue(experiment) + found
