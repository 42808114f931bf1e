"""Fair share: each experiment may hold its max-min fair share (see `shares`), and more while no other one wants it.

The experiment furthest below its share is served first, and may preempt those above theirs, but never below it: so nothing is
preempted to and fro. Gangs that are within their share and held keep experiments behind them from the free slots, except for
backfill. After them, free slots go to any experiment that can use them; such gangs are above their share and give way as soon as
it is wanted. A gang that is larger than its share gets its slots in turn with the others (see `turns`).

With a half-life, past use lowers the weight of workspaces and users (see `usage`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.sentences.waiting import ShareUsed, Waiting
from tenuto.services.scheduler.policies.decisions import Decisions, TrialDemand, demand_of
from tenuto.services.scheduler.policies.feasibility import first_coming
from tenuto.services.scheduler.policies.growing import Growing
from tenuto.services.scheduler.policies.lending import may_borrow
from tenuto.services.scheduler.policies.passes import PassParts
from tenuto.services.scheduler.policies.placement import Room, for_trial
from tenuto.services.scheduler.policies.preemption_candidates import PreemptionCandidates
from tenuto.services.scheduler.policies.reasons import OrderNumbers, gang
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.serving import ELSEWHERE, SATISFIED
from tenuto.services.scheduler.policies.shrinking import droppable
from tenuto.services.scheduler.policies.supply import Supply
from tenuto.services.scheduler.policies.targets import divided
from tenuto.services.scheduler.policies.turns import due_us, quota_binds, turn_us, with_turns
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State
from tenuto.services.scheduler.state.slotsets import count


def plan(state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> list[EventData]:
    if notes is None and not _anything_to_do(state, pool):
        return []
    return FairShareQueue(PassParts(state, pool, now_us, notes, "fair_share", FairShareRules)).plan()


def _anything_to_do(state: State, pool: Pool) -> bool:
    """True if an experiment could use slots, and there are some that could change hands: free ones, or those of running gangs
    that may give way."""
    if not pool.queue and not pool.elastic:
        return False
    return bool(pool.free or pool.victims or pool.elastic or may_borrow(state, pool))


class FairShareRules(PolicyRules):
    _preemptible: PreemptionCandidates | None = None

    def __init__(self, decisions: Decisions, supply: Supply) -> None:
        super().__init__(decisions, supply)
        self.divided = divided(self.state, self.pool, self.now_us)
        self.shares = with_turns(self.state, self.pool, self.divided, self.now_us, self.may_start)
        self.targets = self.shares.targets
        """Experiment -> slots of its share."""
        self.promised: dict[int, int] = {}
        """Experiment -> slots promised in this pass, beside those that it holds."""

    # Shares.

    def may_start(self, experiment: Experiment) -> bool:
        """True if its limits and constraints let a gang of it start, once there are slots."""
        if experiment.max_slots is not None and experiment.slots_per_trial > experiment.max_slots:
            return False
        if quota_binds(self.state, self.divided, experiment):
            return False
        return first_coming(self.state, self.pool, experiment) is not None

    def target(self, key: int) -> int:
        return self.targets.get(key, 0)

    def counted(self, key: int) -> int:
        """Slots that the experiment holds or was promised in this pass."""
        return self.pool.held.get(key, 0) + self.promised.get(key, 0)

    def _above(self, key: int) -> int:
        """Slots above its share that the experiment still holds, with what was decided in this pass."""
        gone = 0
        for item in sorted(self.taken):
            allocation = self.state.allocations[item]
            if allocation.experiment_id == key:
                gone += allocation.size_soon - self.decisions.next_size(item)
        return self.pool.held.get(key, 0) - gone - self.target(key)

    # Whose turn it is.

    def order(self, experiment: Experiment) -> OrderNumbers:
        target = self.target(experiment.experiment_id)
        in_turn = experiment.experiment_id in self.shares.turns
        return {"slots_share": target} if in_turn else {"slots_share": target, "weight": experiment.weight}

    def turn_until(self, experiment: Experiment) -> int | None:
        begins = experiment.experiment_id in self.shares.turns and experiment.turn_until_us <= self.now_us
        return self.now_us + turn_us(experiment, self.divided) if begins else None

    # Who is preempted: those above their share, and never below it.

    @property
    def preemptible(self) -> PreemptionCandidates:
        """Candidates for preemption, found on first use: most passes preempt no gang."""
        if self._preemptible is None:
            comes_back = self.supply.comes_back
            found = PreemptionCandidates(self.state, self.pool, self.shares.above, self.targets, self.taken, comes_back)
            self._preemptible = found
        return self._preemptible

    def rank(self, experiment: Experiment, allocation: Allocation) -> int | None:
        return 0 if self.preemptible.alone(allocation) else None

    def candidates(self, experiment: Experiment, missing: int, given: Mapping[str, int] | None = None) -> Sequence[Candidate]:
        """Gangs of experiments above their share. The experiment furthest above gives first, and of its gangs the latest saved or
        granted."""
        return self.preemptible.candidates(missing)

    def together(self, candidates: list[Candidate]) -> list[Candidate]:
        return self.preemptible.together(candidates)

    def gains(self, candidates: Sequence[Candidate], given: Mapping[str, int]) -> list[int]:
        """Slots gained from each: shrunk and preempted together, an experiment comes down to its share and not below."""
        gave: dict[int, int] = {}
        for item in sorted(given):
            key = self.state.allocations[item].experiment_id
            gave[key] = gave.get(key, 0) + given[item]
        left = {key: self._above(key) - gave[key] for key in sorted(gave)}
        found = []
        for candidate in candidates:
            key, gain = candidate.allocation.experiment_id, candidate.freed - given.get(candidate.allocation.allocation_id, 0)
            if key in left:
                gain = max(0, min(gain, left[key]))
                left[key] -= gain
            found.append(gain)
        return found

    def why_preempted(self, demand: TrialDemand, victim: Candidate) -> dict[str, Any]:
        other = self.state.experiments[victim.allocation.experiment_id]
        return {
            **self._shares_of(demand.experiment, other),
            "wanted_by_runs": bool(demand.experiment.trials[demand.number].allocation_id),
            "guest_of": other.pool if self.is_guest(other) else "",
        }

    # Elastic trials.

    def spare(self, experiment: Experiment) -> Iterator[tuple[Allocation, int]]:
        """Elastic allocations of experiments above their share, largest trials first, each with the slots that it can give:
        together at most what the experiment holds above its share."""
        above: dict[int, int] = {}
        found = [self.state.allocations[item] for item in self.pool.elastic]
        for allocation in sorted(found, key=lambda item: (-count(self.decisions.slots_soon(item)), item.allocation_id)):
            key = allocation.experiment_id
            left = above.get(key, self._above(key))
            given = max(0, min(left, self.decisions.surplus(allocation)))
            above[key] = left - given
            yield allocation, given

    def compared(self, experiment: Experiment, other: Experiment) -> dict[str, Any]:
        return {**self._shares_of(experiment, other), "guest": self.is_guest(other)}

    def _shares_of(self, experiment: Experiment, other: Experiment) -> dict[str, int]:
        """Slots that the two hold, and their shares."""
        return {
            "slots_held": self.pool.held.get(other.experiment_id, 0),
            "slots_share": self.target(other.experiment_id),
            "wanted_by_slots_held": self.counted(experiment.experiment_id),
            "wanted_by_slots_share": self.target(experiment.experiment_id),
        }

    def part_of_share(self, experiment: Experiment) -> int:
        """Even among the trials that run, wait, or are expected."""
        target = self.target(experiment.experiment_id)
        at_once = max(experiment.width, len(experiment.allocations) + len(experiment.waiting))
        return min(experiment.slots_most, target // at_once, target - self.counted(experiment.experiment_id))

    def growth_left(self, experiment: Experiment) -> int:
        key = experiment.experiment_id
        return self.target(key) - self.counted(key) - self.decisions.grown.get(key, 0)


class FairShareQueue:
    """Serves experiments below their share, lets running trials grow to their share, and lends what is left."""

    def __init__(self, parts: PassParts[FairShareRules]) -> None:
        self.parts, self.rules, self.decisions, self.supply = parts, parts.rules, parts.decisions, parts.supply
        self._state, self._pool = self.decisions.state, self.decisions.pool

    def plan(self) -> list[EventData]:
        if self._pool.queue:
            self._serve_below_share()
        # Drafts count as well: an elastic trial granted slots in this pass may start with more of them.
        if (self._pool.elastic or self.decisions.drafts) and self.parts.slots_wait_for_nobody:
            self.parts.growth.grow()
            self._grow_at_others_cost()
        # Lending comes last: what it gives away must not be missing for a share or for growth within one.
        if self._pool.queue:
            self._lend_the_rest()
        return self.decisions.drafts

    # Those below their share.

    def _serve_below_share(self) -> None:
        """Serves experiments below their share. The one with the smallest part of its share is first, and the first that is
        held keeps the others from the free slots."""
        heap: list[tuple[float, float, int, int]] = []
        """(part of its share that it has, place, experiment, index of its next waiting trial)."""
        # One above its share may let its own larger trials shrink.
        for key in sorted(self.rules.targets if self._pool.elastic else self.rules.shares.below):
            experiment = self._state.experiments[key]
            if experiment.queued and experiment.pool == self._pool.name:
                self._push(heap, experiment, 0)
        reservations = self.parts.reservations
        while heap:
            _, _, key, at = heapq.heappop(heap)
            experiment = self._state.experiments[key]
            if reservations.held:
                self.parts.backfill.backfill(experiment)
                if self.decisions.notes is None and reservations.held[-1].start is None:
                    return
                continue
            number, used = experiment.waiting[at], experiment.slots_used + self.rules.promised.get(key, 0)
            outcome, slots = self.parts.serving.serve(experiment, number, used)
            if outcome == "held":
                reservations.reserve(experiment)
            elif outcome in ELSEWHERE and experiment.trials[number].excluded:
                self._push(heap, experiment, at + 1)  # Another of its trials may go where this one failed.
            elif outcome in SATISFIED:
                # What another pool lends is none of its share here.
                promised = experiment.slots_per_trial if outcome == "lent" else slots
                self.rules.promised[key] = self.rules.promised.get(key, 0) + promised
                self._push(heap, experiment, at + 1)

    def _push(self, heap: list[tuple[float, float, int, int]], experiment: Experiment, at: int) -> None:
        """Adds the experiment to the heap if its next trial is within its share."""
        if at >= len(experiment.waiting):
            return
        key = experiment.experiment_id
        has, target = self.rules.counted(key), self.rules.target(key)
        if has + experiment.slots_per_trial <= target:
            # The target is not 0 here, as a gang fits into it.
            heapq.heappush(heap, (has / target, experiment.place, key, at))
        elif experiment.elastic:
            self.parts.shrinking.shrink_inside(experiment)

    # Growing to their shares, also at the cost of those above theirs.

    def _grow_at_others_cost(self) -> None:
        wanted: dict[int, int] = {}
        """Experiment -> slots by which its trials would grow."""
        bound: list[tuple[Growing, int]] = []
        """Trials that may not grow everywhere, each with the slots by which it would."""
        for entry in self.parts.growth.growing() if self._pool.elastic else ():
            if self.rules.is_guest(entry.experiment):
                continue
            key = entry.experiment.experiment_id
            more = min(max(0, self.rules.growth_left(entry.experiment)) - wanted.get(key, 0), entry.most - entry.before)
            wanted[key] = wanted.get(key, 0) + max(0, more)
            if for_trial(entry.experiment, entry.number).constraints is not None:
                bound.append((entry, more))
        for entry, more in bound:
            wanted[entry.experiment.experiment_id] -= max(0, more)
            self._make_way_around(entry, more)
        missing = sum(wanted.values()) - self.supply.available() - self.supply.leaving
        for key in sorted(wanted):
            if wanted[key] and missing > 0:
                missing -= self._make_way(self._state.experiments[key], min(missing, wanted[key]))

    def _make_way_around(self, entry: Growing, more: int) -> None:
        """Makes way for a trial that may only grow where it is: it could not use slots that are given up elsewhere."""
        asked, ground = for_trial(entry.experiment, entry.number).constraints, self.supply.ground
        room = ground.around(asked, [agent_id for agent_id, _ in entry.slots])
        if room is not None and more > 0:
            self._make_way(entry.experiment, more - ground.free_in(room) - self.supply.coming_in(room), room)

    def _make_way(self, experiment: Experiment, missing: int, room: Room | None = None) -> int:
        """Makes experiments above their shares give up at most `missing` slots, for running trials that are entitled to more."""
        freed = 0
        for allocation, most in list(self.rules.spare(experiment)):
            soon = self.decisions.slots_soon(allocation)
            slots = min(most, missing - freed, len(droppable(self._state, self._pool, soon, room)))
            if slots > 0:
                self.parts.shrinking.shrink(allocation, slots, experiment, missing, room)
                freed += slots
        chosen: list[Candidate] = []
        if freed < missing:
            reclaiming, left = self.parts.reclaiming, missing - freed
            found = self.rules.candidates(experiment, left) if room is None else reclaiming.candidates_in(experiment, room)
            for candidate in found:
                if candidate.freed <= missing - freed and candidate.allocation.experiment_id != experiment.experiment_id:
                    chosen.append(candidate)
                    freed += candidate.freed
        if chosen:
            # Growth has no waiting trial, so the record names the first of the running ones as the one that wants the slots.
            number = min(self._state.allocations[item].trial_number for item in experiment.allocations)
            demand = TrialDemand(experiment, number, experiment.slots_used, experiment.slots_per_trial)
            self.parts.reclaiming.preempt(demand, chosen, self.supply.available(), self.supply.leaving, missing)
        return freed

    # Those that have their share.

    def _lend_the_rest(self) -> None:
        """Grants free slots that no experiment within its share waits for to experiments that will give them back."""
        # Borrowers give the slots back on demand, so reserved rooms are open to them.
        self.parts.reservations.in_rooms.open_all()
        # The queue is that of the state, in which trials granted slots in this pass still wait.
        served = {draft.trial_id for draft in self.decisions.drafts if isinstance(draft, AllocationGranted)}
        for experiment in (self._state.experiments[entry[2]] for entry in self._pool.queue):
            if self.supply.available() == 0 and self.decisions.notes is None and not experiment.fallback_pools:
                # From here on only experiments with a fallback pool could still get something.
                if self.supply.claimed or not may_borrow(self._state, self._pool):
                    return
                continue
            key = experiment.experiment_id
            used = experiment.slots_used + self.rules.promised.get(key, 0)
            for number in experiment.waiting:
                if f"{key}-{number}" in served:
                    continue
                slots = self._lend(experiment, number, used)
                if not slots:
                    self._note_share(experiment, used)
                    break
                used += slots

    def _lend(self, experiment: Experiment, number: int, used: int) -> int:
        """Slots on which it starts beyond its share; 0: it does not."""
        fits = experiment.preemptible and experiment.slots_per_trial <= self.supply.available()
        if not (fits or experiment.fallback_pools) or self.parts.quotas.over_limit(experiment, used):
            return 0
        demand, free, starting = demand_of(experiment, number, used), self.supply.free.count, self.parts.starting
        if experiment.preemptible and not self.supply.claimed:
            slots = self.supply.ground.take(demand.experiment.constraints, demand.wanted)
            if slots is not None:
                return starting.grant(demand, slots, free)
        return starting.on_lent_slots(demand)

    def _note_share(self, experiment: Experiment, used: int) -> None:
        """Notes why an experiment waits for which no slots are kept or freed."""
        if self.decisions.notes is None or self.parts.quotas.over_limit(experiment, used):
            return
        key = experiment.experiment_id
        has_turns = not experiment.allocations and self.rules.may_start(experiment)
        due = due_us(experiment, self.rules.divided) if has_turns else None
        has, target = self.rules.counted(key), self.rules.target(key)
        self.decisions.note(experiment, ShareUsed(**gang(experiment), slots_used=has, slots_share=target, expected_us=due))
