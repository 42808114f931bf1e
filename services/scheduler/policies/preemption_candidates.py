"""Running gangs that may go without taking their experiment below its fair share, even if all of them do.

Of an experiment they are those latest saved or granted, as many as fit between what it holds and its share. The one furthest
above its share per weight gives first. All experiments' gangs are one order, of which a needy gang needs the first few of each
size: an earlier one of the same size is the cheaper one. So they are kept in a heap for each size, in which each experiment is
there with its next gang; what was taken in a pass costs its experiment a new place, and not all others. Elastic trials differ in
size, so an experiment of such is listed whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State
from tenuto.services.scheduler.state.usable import slots_coming_back

Gang = tuple[float, Allocation]
"""(slots per weight that its experiment holds until it goes, the gang)."""


class PreemptionCandidates:
    """During one pass. `taken`: who was told to leave in it, which the pass adds to."""

    def __init__(
        self,
        state: State,
        pool: Pool,
        above: Iterable[int],
        targets: Mapping[int, int],
        taken: set[str],
        comes_back: Callable[[Allocation], int] | None = None,
    ) -> None:
        """`above`: experiments that hold more than their target. `comes_back`: slots that can be used when one is released."""
        self._state, self._pool, self._targets, self._taken = state, pool, targets, taken
        self._comes_back = comes_back or (lambda allocation: slots_coming_back(state, pool, allocation))
        self._known_taken: set[str] = set(taken)
        self._order: dict[int, list[Allocation]] = {}
        """Experiment that is not elastic -> its gangs as they stood when the pass began, of those that were looked at."""
        self._start: dict[int, int] = {}
        """Experiment -> number of gangs at the beginning of that order that were taken."""
        self._gangs: dict[int, list[Gang]] = {}
        """Elastic experiment -> its gangs that may go; absent where they are to be found anew."""
        self._elastic_left: dict[int, int] = {}
        """Elastic experiment -> slots that it holds until more of it goes; absent where they are to be counted anew."""
        self._version: dict[int, int] = {}
        """Experiment above its share -> number of its gangs taken since: older entries of heaps are void."""
        self._elastic: list[int] = []
        self._heaps: dict[int, list[tuple[float, int, int]]] = {}
        """Slots of a gang -> (-slots per weight, experiment, version)."""
        self._gone: dict[int, int] = {}
        """Experiment -> slots of its gangs that were taken."""
        for item in sorted(taken):
            self._count_gone(item)
        for key in sorted(above):
            experiment = state.experiments[key]
            if not experiment.preemptible:
                continue
            self._version[key] = 0
            if experiment.elastic:
                self._elastic.append(key)
            elif self._length(experiment) > 0:
                self._heaps.setdefault(experiment.slots_per_trial, []).append(self._entry(experiment))
        for heap in self._heaps.values():
            heapify(heap)

    def alone(self, allocation: Allocation) -> bool:
        """True if this one may go, if no other one of its experiment does."""
        self._catch_up()
        key = allocation.experiment_id
        if key not in self._version or allocation.allocation_id in self._taken or allocation.stays:
            return False
        return self._left_of(key) - allocation.size >= self._targets.get(key, 0)

    def together(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Candidates that may go even if all of them do, of each experiment the latest saved or granted: for a gang that
        can only use slots where these run."""
        left: dict[int, int] = {}
        found: list[Candidate] = []
        for item in sorted(candidates, key=lambda item: (-item.allocation.since_us, -item.allocation.grant)):
            key = item.allocation.experiment_id
            holds = left[key] if key in left else self._left_of(key)
            if holds - item.allocation.size >= self._targets.get(key, 0):
                left[key] = holds - item.allocation.size
                found.append(item)
        return sorted(found, key=lambda item: item.allocation.allocation_id)

    def _left_of(self, key: int) -> int:
        """Slots that the experiment holds until more of it goes."""
        experiment = self._state.experiments[key]
        if not experiment.elastic:
            return self._holds(experiment)
        if key not in self._elastic_left:
            running = self._running(experiment)
            self._elastic_left[key] = sum([item.size for item in running if item.allocation_id not in self._taken])
        return self._elastic_left[key]

    def candidates(self, missing: int) -> list[Candidate]:
        """Enough to choose the cheapest set from that frees so many slots; their ranks are their order."""
        self._catch_up()
        found: list[tuple[float, int, int, Candidate]] = []
        for size in sorted(self._heaps):
            found += self._first(self._heaps[size], missing)
        for key in self._elastic:
            for at, (above, allocation) in enumerate(self._gangs_of(key)):
                found += self._found(above, key, at, allocation)
        found.sort(key=lambda entry: entry[:3])
        return [entry[3]._replace(rank=rank) for rank, entry in enumerate(found)]

    def _first(self, heap: list[tuple[float, int, int]], missing: int) -> list[tuple[float, int, int, Candidate]]:
        """The first ones of one size, until they free enough."""
        # A key in a heap cannot be changed: a new entry is pushed beside the old one, whose version is outdated.
        while heap and heap[0][2] != self._version[heap[0][1]]:
            heappop(heap)
        found: list[tuple[float, int, int, Candidate]] = []
        # A copy of a heap is a heap; the original must keep its entries for the next gang.
        freed, left, walks = 0, list(heap), dict[int, Iterator[Gang]]()
        places: dict[int, int] = {}
        following: dict[int, Gang | None] = {}
        while left and freed < missing:
            _, key, version = heappop(left)
            if version != self._version[key]:
                continue
            if key not in walks:
                walks[key] = self._walk(self._state.experiments[key])
                following[key] = next(walks[key], None)
            gang, at = following[key], places.get(key, 0)
            if gang is None:
                continue
            found += (one := self._found(gang[0], key, at, gang[1]))
            freed += sum(entry[3].freed for entry in one)
            places[key], following[key] = at + 1, (after := next(walks[key], None))
            if after is not None:
                heappush(left, (-after[0], key, version))
        return found

    def _walk(self, experiment: Experiment) -> Iterator[Gang]:
        """Gangs of a non-elastic experiment that may go, in order, without those already taken."""
        key, size = experiment.experiment_id, experiment.slots_per_trial
        order = self._order.get(key)
        if order is None:
            order = self._order[key] = self._running(experiment)
        at = self._start.get(key, 0)
        while at < len(order) and (order[at].allocation_id in self._taken or order[at].stays):
            at += 1
        self._start[key] = at
        holds, left = self._holds(experiment), self._length(experiment)
        while left > 0 and at < len(order):
            if order[at].allocation_id not in self._taken and not order[at].stays:
                yield holds / experiment.weight, order[at]
                holds, left = holds - size, left - 1
            at += 1

    def _found(self, above: float, key: int, at: int, allocation: Allocation) -> list[tuple[float, int, int, Candidate]]:
        freed = self._comes_back(allocation)
        return [(-above, key, at, Candidate(allocation, freed, 0))] if freed else []

    def _catch_up(self) -> None:
        if len(self._taken) == len(self._known_taken):
            return
        for item in sorted(self._taken - self._known_taken):
            self._known_taken.add(item)
            key = self._count_gone(item)
            self._gangs.pop(key, None)
            self._elastic_left.pop(key, None)
            if key not in self._version:
                continue
            self._version[key] += 1
            experiment = self._state.experiments[key]
            if not experiment.elastic and self._length(experiment) > 0:
                heappush(self._heaps[experiment.slots_per_trial], self._entry(experiment))

    def _count_gone(self, item: str) -> int:
        allocation = self._state.allocations[item]
        key = allocation.experiment_id
        self._gone[key] = self._gone.get(key, 0) + allocation.size
        return key

    def _holds(self, experiment: Experiment) -> int:
        """Of one that is not elastic: those of its gangs that stay are all that it holds."""
        return self._pool.held.get(experiment.experiment_id, 0) - self._gone.get(experiment.experiment_id, 0)

    def _length(self, experiment: Experiment) -> int:
        """Number of gangs of a non-elastic experiment that may go."""
        return (self._holds(experiment) - self._targets.get(experiment.experiment_id, 0)) // experiment.slots_per_trial

    def _entry(self, experiment: Experiment) -> tuple[float, int, int]:
        key = experiment.experiment_id
        return (-self._holds(experiment) / experiment.weight, key, self._version[key])

    def _gangs_of(self, key: int) -> list[Gang]:
        gangs = self._gangs.get(key)
        if gangs is None:
            gangs = self._gangs[key] = self._elastic_gangs(self._state.experiments[key])
        return gangs

    def _running(self, experiment: Experiment) -> list[Allocation]:
        running = [self._state.allocations[item] for item in experiment.allocations]
        running = [item for item in running if not item.leaving and item.pool == self._pool.name]
        return sorted(running, key=lambda item: (-item.since_us, -item.grant))

    def _elastic_gangs(self, experiment: Experiment) -> list[Gang]:
        target = self._targets.get(experiment.experiment_id, 0)
        running = [item for item in self._running(experiment) if item.allocation_id not in self._taken]
        holds = sum(item.size for item in running)
        gangs: list[Gang] = []
        for allocation in running:
            if holds - allocation.size < target:
                break
            if allocation.stays:
                continue
            gangs.append((holds / experiment.weight, allocation))
            holds -= allocation.size
        return gangs
