"""Running gangs that may go without taking their experiment below its fair share, even if all of them do.

Of an experiment they are those latest saved or granted, as many as fit between what it holds and its share. The one furthest
above its share per weight gives first. All experiments' gangs are one order, of which a needy gang needs the first few of each
size: an earlier one of the same size is the cheaper one. So experiments are kept in a heap for each size, by what they hold, and
their gangs are looked at only when it is their turn; what was taken in a pass costs its experiment a new place, and not all
others. Elastic trials differ in size, so an experiment of such is listed whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush

from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State

Entry = tuple[float, int, int]
"""(-slots per weight that it holds, experiment, slots that it holds), sorted by whose next gang goes first."""


class PreemptionCandidates:
    """Candidates during one pass. `taken`: allocations that were told to leave in it; the pass adds to them."""

    def __init__(
        self,
        state: State,
        pool: Pool,
        above: Iterable[int],
        targets: Mapping[int, int],
        taken: set[str],
        comes_back: Callable[[Allocation], int],
    ) -> None:
        """Parameters: `above` are experiments that hold more than their target; `comes_back` tells the slots that can be used
        when an allocation is released."""
        self._state, self._pool, self._targets, self._taken = state, pool, targets, taken
        self._comes_back = comes_back
        self._order: dict[int, list[Allocation]] = {}
        """Experiment -> its gangs as they stood when the pass began, of those that were looked at."""
        self._gone: dict[int, int] = {}
        """Experiment -> slots of its gangs that were taken."""
        self._counted = set(taken)
        """Allocations of `taken` that `_gone` includes."""
        for item in sorted(taken):
            self._count_gone(item)
        self._above = {key: state.experiments[key] for key in sorted(above) if state.experiments[key].preemptible}
        self._heaps: dict[int, list[Entry]] = {}
        """Slots of a gang -> entries of the experiments with such gangs. What an experiment holds only becomes less in a pass, so
        outdated entries are before the true one."""
        for experiment in self._above.values():
            self._put(experiment)

    def alone(self, allocation: Allocation) -> bool:
        """True if this one may go, if no other one of its experiment does."""
        self._catch_up()
        key = allocation.experiment_id
        if key not in self._above or allocation.allocation_id in self._taken or allocation.stays:
            return False
        return self._holds(self._above[key]) - allocation.size >= self._targets.get(key, 0)

    def together(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Candidates that may go even if all of them do, of each experiment the latest saved or granted: for a gang that
        can only use slots where these run."""
        left: dict[int, int] = {}
        found: list[Candidate] = []
        for item in sorted(candidates, key=lambda item: (-item.allocation.since_us, -item.allocation.grant)):
            key = item.allocation.experiment_id
            holds = left[key] if key in left else self._holds(self._state.experiments[key])
            if holds - item.allocation.size >= self._targets.get(key, 0):
                left[key] = holds - item.allocation.size
                found.append(item)
        return sorted(found, key=lambda item: item.allocation.allocation_id)

    def candidates(self, missing: int) -> list[Candidate]:
        """Candidates enough to choose the cheapest set from that frees that many slots; their ranks are their order."""
        self._catch_up()
        found: list[tuple[Entry, Candidate]] = []
        for size in sorted(self._heaps):
            found += self._first(self._heaps[size], missing)
        for experiment in self._above.values():
            if experiment.elastic:
                found += self._all(experiment)
        # No two entries are equal, as each gang that goes leaves its experiment with less.
        found.sort(key=lambda entry: entry[0])
        return [candidate._replace(rank=rank) for rank, (_, candidate) in enumerate(found)]

    def _first(self, heap: list[Entry], missing: int) -> Iterator[tuple[Entry, Candidate]]:
        """The first ones of one size, until they free enough."""
        # A copy of a heap is a heap; the original must keep its entries for the next gang.
        freed, heap, staying = 0, list(heap), dict[int, Iterator[Allocation]]()
        while heap and freed < missing:
            entry = heappop(heap)
            _, key, holds = entry
            experiment = self._above[key]
            left = holds - experiment.slots_per_trial
            if left < self._targets.get(key, 0):
                continue
            if key not in staying:
                if holds != self._holds(experiment):
                    continue  # Outdated.
                staying[key] = (item for item in self._staying(experiment) if not item.stays)
            gang = next(staying[key], None)
            if gang is not None:
                heappush(heap, (-left / experiment.weight, key, left))
                gain = self._comes_back(gang)
                freed += gain
                if gain:
                    yield entry, Candidate(gang, gain, 0)

    def _all(self, experiment: Experiment) -> Iterator[tuple[Entry, Candidate]]:
        """Candidates of an elastic experiment."""
        key, holds = experiment.experiment_id, self._holds(experiment)
        for gang in self._staying(experiment):
            if holds - gang.size < self._targets.get(key, 0):
                return
            if not gang.stays:
                gain = self._comes_back(gang)
                if gain:
                    yield (-holds / experiment.weight, key, holds), Candidate(gang, gain, 0)
                holds -= gang.size

    def _staying(self, experiment: Experiment) -> list[Allocation]:
        """Gangs of the experiment that were not taken, the latest saved or granted first."""
        key = experiment.experiment_id
        if key not in self._order:
            running = [self._state.allocations[item] for item in experiment.allocations]
            running = [item for item in running if not item.leaving and item.pool == self._pool.name]
            self._order[key] = sorted(running, key=lambda item: (-item.since_us, -item.grant))
        return [item for item in self._order[key] if item.allocation_id not in self._taken]

    def _holds(self, experiment: Experiment) -> int:
        """Slots that the experiment holds until more of it goes."""
        if experiment.elastic:
            return sum([item.size for item in self._staying(experiment)])
        # Those of its gangs that are not leaving are all that it holds, so none of them has to be looked at.
        return self._pool.held.get(experiment.experiment_id, 0) - self._gone.get(experiment.experiment_id, 0)

    def _put(self, experiment: Experiment) -> None:
        if not experiment.elastic:
            holds = self._holds(experiment)
            entry = (-holds / experiment.weight, experiment.experiment_id, holds)
            heappush(self._heaps.setdefault(experiment.slots_per_trial, []), entry)

    def _catch_up(self) -> None:
        # Comparing the numbers is enough, as `taken` only grows between two questions: fair share never calls
        # `Reclaiming.could_free`, which takes some for a moment.
        if len(self._taken) == len(self._counted):
            return
        for item in sorted(self._taken - self._counted):
            self._counted.add(item)
            key = self._count_gone(item)
            if key in self._above:
                self._put(self._above[key])

    def _count_gone(self, item: str) -> int:
        allocation = self._state.allocations[item]
        key = allocation.experiment_id
        self._gone[key] = self._gone.get(key, 0) + allocation.size
        return key
