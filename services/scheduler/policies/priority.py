"""Priority with preemption, and no starvation within a priority.

The most urgent are served first, and among equals in the order of `owner_fairness`, each as `serving` says. A gang may preempt
allocations of strictly lower priority. One that is held holds back the trials behind it at its own priority until it fits, so
that small gangs cannot starve a large one. Trials of lower priority may use the slots meanwhile, because they can be preempted.

Skipped, without holding others back: experiments at their slot limit, and gangs larger than all usable slots of the pool. A gang
that must be on one agent or rack holds back only the one that is nearest to having its slots.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import SlotsReserved
from tenuto.schemas.ids import trial_id
from tenuto.schemas.sentences.grants import Reserves
from tenuto.schemas.sentences.waiting import Waiting
from tenuto.services.scheduler.policies.backfill import BACKFILL_LOOKED_AT_MAX
from tenuto.services.scheduler.policies.decisions import demand_of
from tenuto.services.scheduler.policies.growing import GUEST_RANK
from tenuto.services.scheduler.policies.lending import may_borrow
from tenuto.services.scheduler.policies.owner_fairness import OwnerFairness
from tenuto.services.scheduler.policies.passes import PassParts, planned
from tenuto.services.scheduler.policies.reasons import OrderNumbers
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.serving import ELSEWHERE, SATISFIED, Outcome
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State
from tenuto.services.scheduler.state.giving_way import gives_way


def plan(state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> list[EventData]:
    """Grants and preemptions that should happen now, in order. Empty when there is nothing to do."""
    if not pool.queue and not pool.elastic:
        return []
    return planned(PassParts(state, pool, now_us, notes, "priority", PriorityRules), lambda parts: PriorityQueue(parts).serve())


class PriorityRules(PolicyRules):
    def order(self, experiment: Experiment) -> OrderNumbers:
        return {"priority": experiment.priority}

    # Who is preempted: the less urgent, and of its own priority those that run longer than they said.

    def _overdue(self, experiment: Experiment) -> list[Candidate]:
        """Overdue candidates of its own priority."""
        experiments = self.state.experiments
        return [item for item in self.overdue() if experiments[item.allocation.experiment_id].priority == experiment.priority]

    def _less_urgent(self, experiment: Experiment) -> Iterator[tuple[int, int, Allocation]]:
        """(rank, slots, allocation) of those that were not told to leave."""
        for priority, size, _, item in self.pool.victims:
            if -priority <= experiment.priority:
                return
            if item not in self.taken:
                # Priorities in `victims` are negated, so this is the same number as in `rank`.
                yield 100 + priority, size, self.state.allocations[item]

    def least_urgent(self) -> int:
        """The priority of the least urgent allocation that may be preempted; 0: there is none."""
        if self.pool.backfilled and self.pool.backfilled[0][0] <= self.now_us:
            # An overdue allocation may go for a gang of its own priority, so no priority is without hope.
            return 100
        return next((-entry[0] for entry in self.pool.victims if entry[3] not in self.taken), 0)

    def rank(self, experiment: Experiment, allocation: Allocation) -> int | None:
        other = self.state.experiments[allocation.experiment_id]
        if not gives_way(other, allocation):
            return None
        if other.priority > experiment.priority:
            return 100 - other.priority
        return 0 if self.late(allocation) and other.priority == experiment.priority else None

    def givers(self, experiment: Experiment) -> Iterable[str]:
        less_urgent = bisect_left(self.pool.victims, (-experiment.priority,))
        overdue = [candidate.allocation.allocation_id for candidate in self.overdue()]
        return [*overdue, *(entry[3] for entry in self.pool.victims[:less_urgent] if entry[3] not in overdue)]

    def candidates(self, experiment: Experiment, missing: int, given: Mapping[str, int] | None = None) -> Sequence[Candidate]:
        """Candidates of each priority and size, the latest saved or granted first among those that give equally much, as many as
        could be needed. Those with slots that were closed meanwhile free less than others of their size, so they do not count
        towards that."""
        victims, found, given = self.pool.victims, self._overdue(experiment), given or {}
        added: dict[tuple[int, int, int], int] = {}
        """(-priority, slots, slots that they add) -> slots added by those that were found."""
        at = 0
        while at < len(victims) and -victims[at][0] > experiment.priority:
            rank, size, _, item = victims[at]
            at += 1
            gain = size - given.get(item, 0)
            if added.get((rank, size, gain), 0) >= missing:
                if not given:  # So have all others of this priority and size.
                    at = bisect_left(victims, (rank, size + 1), at)
                continue
            freed = 0 if item in self.taken else self.supply.comes_back(self.state.allocations[item])
            if freed:
                found.append(Candidate(self.state.allocations[item], freed, 100 + rank))
                added[rank, size, gain] = added.get((rank, size, gain), 0) + (max(0, gain) if freed == size else 0)
        return found

    # What a held gang, or one that waits for its quota, could have back.

    def reachable(
        self, experiment: Experiment, missing: int, shrinkable: Callable[[Experiment], Iterable[Candidate]]
    ) -> Mapping[str, int]:
        found = {item.allocation.allocation_id: item.freed for item in (*shrinkable(experiment), *self._overdue(experiment))}
        total = sum(found.values())
        for _, _, allocation in self._less_urgent(experiment) if total < missing else ():
            total -= found.get(allocation.allocation_id, 0)
            found[allocation.allocation_id] = self.supply.comes_back(allocation)
            total += found[allocation.allocation_id]
            if total >= missing:
                break
        return found

    def bound_by(self, experiment: Experiment, held: Experiment) -> bool:
        return not experiment.preemptible or experiment.priority <= held.priority

    def gives_quota_back(self, experiment: Experiment, keeper: Experiment) -> bool:
        return experiment.preemptible and experiment.priority > keeper.priority and keeper.constraints is None

    def own_candidates(self, experiment: Experiment, owner: str) -> Sequence[Candidate]:
        return [
            Candidate(allocation, size, rank)
            for rank, size, allocation in self._less_urgent(experiment)
            if owner in self.state.experiments[allocation.experiment_id].owners
        ]

    # Elastic trials.

    def gives_up(self, experiment: Experiment, other: Experiment) -> bool:
        return other.priority >= experiment.priority

    def growth_rank(self, experiment: Experiment) -> int:
        return experiment.priority

    def least_urgent_surplus(self) -> int:
        """The least urgent priority of trials that could give up slots; 0: none can."""
        least = 0
        for allocation in [self.state.allocations[item] for item in self.pool.elastic]:
            if self.decisions.surplus(allocation):
                other = self.state.experiments[allocation.experiment_id]
                least = max(least, GUEST_RANK if self.is_guest(other) else other.priority)
        return least


class PriorityQueue:
    """Serves those that wait, priority by priority."""

    def __init__(self, parts: PassParts[PriorityRules]) -> None:
        self.parts, self.rules, self.decisions = parts, parts.rules, parts.decisions
        self._keeping = parts.quota_keeping
        self._state, self._pool = self.decisions.state, self.decisions.pool
        self._order: OwnerFairness | None = None
        self._served: dict[int, tuple[int, int]] = {}
        """Experiment -> how many of its waiting trials were served, and the slots that it has then."""
        self._waits_first = False
        """True: a gang of this priority has slots reserved."""
        self._only_reserved = 0
        """Number of times that only slots of reserved rooms were left."""
        self._lent = may_borrow(self._state, self._pool)
        """Some experiment in the queue has a fallback pool."""
        self._surplus = self.rules.least_urgent_surplus()

    @property
    def owners(self) -> OwnerFairness:
        """Fairness among owners, made on first use: most passes have nothing to give."""
        if self._order is None:
            self._order = self.decisions.fairness = OwnerFairness(self._state, self._pool)
        return self._order

    def serve(self) -> None:
        queue, at = self._pool.queue, 0
        rigid_held = False
        """True if a gang is held behind which experiments that cannot be preempted may only backfill."""
        while at < len(queue):
            level = queue[at][0]
            self.parts.reservations.in_rooms.open_all()
            if self._nothing_to_do(level):
                break
            rigid_held = self._serve_level(level, rigid_held) or rigid_held
            # The first entry of the next priority: no place sorts before -inf.
            at = bisect_left(queue, (level + 1, float("-inf"), 0))

    def _nothing_to_do(self, level: int) -> bool:
        """True if there is nothing to give and no gang to preempt, at this priority and further down."""
        if self.decisions.notes is not None or self._lent or self.parts.supply.available() > 0:
            return False
        if level <= self._surplus or level < self.rules.least_urgent():
            return False
        self._only_reserved += 1
        return self._only_reserved > BACKFILL_LOOKED_AT_MAX or not self.parts.reservations.in_rooms.may_lend()

    def _serve_level(self, level: int, rigid_held: bool) -> bool:
        """Serve those of one priority. True: one of them is held, and those behind it are with it."""
        owners, reservations = self.owners, self.parts.reservations
        owners.begin(level)
        self._waits_first = held = False
        looked_at = 0
        while (experiment := owners.next()) is not None:
            if self._nothing_to_do(level):
                break
            if held or (rigid_held and not experiment.preemptible):
                looked_at += 1
                hopeless = looked_at > BACKFILL_LOOKED_AT_MAX or not reservations.may_backfill(experiment)
                if self.decisions.notes is not None or self._lent or not hopeless:
                    done, used = self._served.get(experiment.experiment_id, (0, experiment.slots_used))
                    # The state does not know yet which trials were served in this pass, so they are left out here.
                    self.parts.backfill.backfill(replace(experiment, waiting=experiment.waiting[done:], slots_used=used))
                elif held:
                    break
                owners.done(experiment)
            elif not self._serve_next(experiment):
                held = True
                reservations.reserve(experiment)
                owners.done(experiment)
        return held

    def _serve_next(self, experiment: Experiment) -> bool:
        """Serve the experiment's next waiting trial. False: it must wait, and those behind it at its priority with it."""
        key = experiment.experiment_id
        at, used = self._served.get(key, (0, experiment.slots_used))
        if at >= len(experiment.waiting):
            self.owners.done(experiment)
            return True
        number = experiment.waiting[at]
        outcome, slots = self.parts.serving.serve(experiment, number, used)
        if outcome in SATISFIED:
            self._served[key] = (at + 1, used + slots)
            if outcome == "soon":
                # `Decisions.grant` counts what is granted; slots being freed make no draft, so they are counted here.
                self.parts.quotas.promise(experiment, slots)
                self.owners.add(experiment, slots)
                self._waits_first = self._waits_first or self.owners.has_reserved(experiment)
            return True
        if outcome in ("held", "holds_room"):
            self._remember(experiment, number, outcome)
        if outcome == "held":
            return False
        if outcome in ELSEWHERE and experiment.trials[number].excluded:
            self._served[key] = (at + 1, used)  # Another of its trials may go where this one failed.
            return True
        if outcome == "limit":
            self._keeping.keep_for(demand_of(experiment, number, used))
        self.owners.done(experiment)
        return True

    def _remember(self, experiment: Experiment, number: int, outcome: Outcome) -> None:
        """Records that slots are kept for the gang, where other owners could come before it later. Gangs with constraints, which
        hold no others back, are recorded one at a time."""
        if not self.owners.has_reserved(experiment) and (outcome == "held" or not self._waits_first):
            trial, free = trial_id(experiment.experiment_id, number), self.parts.supply.available()
            why = Reserves(priority=experiment.priority, slots_wanted=experiment.slots_per_trial, slots_free=free)
            self.decisions.drafts.append(
                SlotsReserved(pool=self._pool.name, trial_id=trial, experiment_id=experiment.experiment_id, reason=why.reason())
            )
        self._waits_first = True
