"""Rules: the questions that a policy answers. A pass is the same under all policies; it asks its rules for the order of
experiments, for the trials that give way, and for the shares. The defaults are those of a policy that has no opinion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tenuto.services.scheduler.policies.decisions import Decisions, TrialDemand
from tenuto.services.scheduler.policies.reasons import OrderNumbers
from tenuto.services.scheduler.policies.supply import Supply
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment
from tenuto.services.scheduler.state.giving_way import gives_way


class PolicyRules:
    """Answers of a policy during one pass over one pool. They change nothing that others see."""

    def __init__(self, decisions: Decisions, supply: Supply) -> None:
        self.decisions, self.supply = decisions, supply
        self.state, self.pool, self.now_us, self.taken = decisions.state, decisions.pool, decisions.now_us, decisions.taken

    # Whose turn it is.

    def order(self, experiment: Experiment) -> OrderNumbers:
        """Numbers by which the policy orders experiments: the reason why this one is next."""
        raise NotImplementedError

    def turn_until(self, experiment: Experiment) -> int | None:
        """Time until which the experiment is entitled to its present grant, if that is its turn; else None."""
        return None

    # Who is preempted for whom.

    def rank(self, experiment: Experiment, allocation: Allocation) -> int | None:
        """Rank of a running gang among those to stay, 0 least; None: it may not be preempted for this experiment."""
        raise NotImplementedError

    def candidates(self, experiment: Experiment, missing: int, given: Mapping[str, int] | None = None) -> Sequence[Candidate]:
        """Running gangs that may be preempted for it, enough of them to choose the cheapest set from. `given`: allocation ->
        slots that it gives up anyway, so that only what it has beyond them counts."""
        raise NotImplementedError

    def together(self, candidates: list[Candidate]) -> list[Candidate]:
        """Candidates of one room that may go even if all of them do."""
        return candidates

    def givers(self, experiment: Experiment) -> Iterable[str]:
        """Allocations among which are all that may be preempted for it."""
        return [entry[3] for entry in self.pool.victims]

    def gains(self, candidates: Sequence[Candidate], given: Mapping[str, int]) -> list[int]:
        """Slots that each adds beside all that elastic trials give. `given`: allocation -> slots that it can give up."""
        return [candidate.freed - given.get(candidate.allocation.allocation_id, 0) for candidate in candidates]

    def why_preempted(self, demand: TrialDemand, victim: Candidate) -> dict[str, Any]:
        """Reason why this trial preempts that gang: numbers that the policy compared beside the priorities, as fields of
        `Preempts`."""
        other, until_us = self.state.experiments[victim.allocation.experiment_id], victim.allocation.backfill_until_us
        counts = self.late_at_any_priority or other.priority <= demand.experiment.priority
        if until_us is not None and self.late(victim.allocation) and counts:
            return {"backfill_until_us": until_us, "late_seconds": (self.now_us - until_us) // 1_000_000}
        return {}

    late_at_any_priority = False
    """True: one that runs longer than it said gives way whatever its priority."""

    def late(self, allocation: Allocation) -> bool:
        """True if it started ahead of a held gang and runs longer than it said."""
        return allocation.backfill_until_us is not None and allocation.backfill_until_us <= self.now_us

    def overdue(self) -> list[Candidate]:
        """Gangs that started ahead of a held one and run longer than they said."""
        found = []
        for until_us, item in self.pool.backfilled:
            if until_us > self.now_us:
                break
            allocation = self.state.allocations[item]
            freed = self.supply.comes_back(allocation)
            experiment = self.state.experiments[allocation.experiment_id]
            if item not in self.taken and freed and gives_way(experiment, allocation):
                found.append(Candidate(allocation, freed, 0))
        return found

    # What a held gang, or one that waits for its quota, could have back.

    def reachable(
        self, experiment: Experiment, missing: int, shrinkable: Callable[[Experiment], Iterable[Candidate]]
    ) -> Mapping[str, int]:
        """Allocation -> slots that it would give up for this experiment at once; no more of them than make up `missing`.
        `shrinkable`: elastic trials with the slots that they can give up for it."""
        return {}

    def bound_by(self, experiment: Experiment, held: Experiment) -> bool:
        """True if what the experiment starts could delay the held one: not if that one could have the slots back."""
        return True

    def gives_quota_back(self, experiment: Experiment, keeper: Experiment) -> bool:
        """True if the keeper could preempt what the experiment starts."""
        return False

    def own_candidates(self, experiment: Experiment, owner: str) -> Sequence[Candidate]:
        """The owner's running gangs that may be preempted to make room in its quota; `freed`: their slots in the quota."""
        return ()

    # Elastic trials.

    def is_guest(self, experiment: Experiment) -> bool:
        """True if its trials' slots here are lent: they give their slots above the minimum to any trial of the pool's own."""
        return experiment.pool != self.pool.name

    def gives_up(self, experiment: Experiment, other: Experiment) -> bool:
        """True if trials of the other experiment give up what they have above their least for this one."""
        raise NotImplementedError

    def spare(self, experiment: Experiment) -> Iterator[tuple[Allocation, int]]:
        """Elastic trials, and how many slots each may give up for this experiment."""
        for item in self.pool.elastic:
            allocation = self.state.allocations[item]
            other = self.state.experiments[allocation.experiment_id]
            if self.is_guest(other) or self.gives_up(experiment, other):
                yield allocation, self.decisions.surplus(allocation)

    def compared(self, experiment: Experiment, other: Experiment) -> dict[str, Any]:
        """Reason why the other experiment gives up slots for this one: numbers that the policy compared, as fields of
        `Shrinks`."""
        return {"priority": other.priority, "wanted_by_priority": experiment.priority}

    def part_of_share(self, experiment: Experiment) -> int:
        """Slots that an elastic trial should start with if nothing else bounds it; 0: its least."""
        return 0

    def growth_left(self, experiment: Experiment) -> int:
        """Slots that the policy lets the experiment have in addition."""
        return self.pool.capacity

    def growth_rank(self, experiment: Experiment) -> int:
        """Rank in which its trials grow: 0 before 1."""
        return 0
