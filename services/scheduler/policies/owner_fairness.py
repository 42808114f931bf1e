"""Next one of the waiting experiments of one priority: fairness among their owners.

Next is the owner (a user in a workspace) that holds the fewest slots of the pool for its weight; with what was promised to it in
the pass, without what gives way in it. Owners that hold equally much, and one owner's experiments, come in the order (place,
experiment). So no owner gains by submitting more, or earlier, than others. Nothing is preempted among equals.

What others hold changes all the time, so a gang that must wait is remembered (SlotsReserved): if it is its owner's first, it is
before all others of its priority until it starts. Otherwise those who hold less could for ever take the slots kept for it.

What each owner holds and the order of its experiments are remembered beside the experiments that they were found from, which are
known by identity (`Pool.groups`). This is kept in the pool's memo, which is no part of the state: without it every result is the
same.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from tenuto.services.scheduler.state import Experiment, Members, Pool, State

Owner = tuple[str, str]
"""(workspace, user)."""
Key = tuple[int, float, float, int]
"""(0 if slots are reserved for it, since when or slots held per weight, place, experiment)."""

REMEMBERED_MAX = 200_000
"""Experiments of one pool; beyond it all is forgotten and found anew."""


@dataclass(slots=True)
class _OwnerGroup:
    """One owner's experiments."""

    members: Members
    held: int
    """Slots in this pool."""
    waiting: int
    """Experiments that wait."""
    queues: dict[int, list[tuple[float, int]]]
    """Priority -> (place, experiment) of those that wait, sorted."""


class _Groups(dict[Owner, _OwnerGroup]):
    """Groups of one pool."""


def _groups(pool: Pool) -> dict[Owner, _OwnerGroup]:
    old, found, total = pool.memo.get(_Groups) or _Groups(), _Groups(), 0
    for owner in sorted(pool.groups):
        members, group = pool.groups[owner], old.get(owner)
        if group is None or group.members is not members:
            group = _group(pool, members)
        found[owner] = group
        total += len(members)
    pool.memo.keep(found if total <= REMEMBERED_MAX else _Groups())
    return found


def _group(pool: Pool, members: Members) -> _OwnerGroup:
    slots, queues = 0, dict[int, list[tuple[float, int]]]()
    for key in sorted(members):
        experiment, held = members[key]
        slots += held
        if experiment.queued and experiment.pool == pool.name:
            queues.setdefault(experiment.priority, []).append((experiment.place, key))
    for queue in queues.values():
        queue.sort()
    return _OwnerGroup(members, slots, sum([len(queue) for queue in queues.values()]), queues)


class OwnerFairness:
    """The experiments that wait at each priority, in the order in which they are next. During one pass."""

    def __init__(self, state: State, pool: Pool) -> None:
        self._state = state
        self._groups = _groups(pool)
        whole = len(pool.queue) == sum([group.waiting for group in self._groups.values()])
        self._only = None if whole else {entry[2] for entry in pool.queue}
        """The experiments to look at, where the pool's queue was shortened."""
        self._granted: set[int] = set()
        """Experiments that were granted slots in the pass: nothing is reserved for them any more."""
        self._changes: dict[Owner, int] = {}
        """Owner -> slots promised in the pass, less those that give way."""
        self._queues: dict[Owner, list[tuple[float, int]]] = {}
        self._at: dict[Owner, int] = {}
        self._heap: list[tuple[Key, Owner]] = []
        self._changed = False

    def begin(self, priority: int) -> None:
        self._queues, self._at = {}, {}
        for owner, group in self._groups.items():
            queue = group.queues.get(priority)
            if queue and self._only is not None:
                queue = [entry for entry in queue if entry[1] in self._only]
            if queue:
                self._queues[owner], self._at[owner] = queue, 0
        self._changed = True

    def next(self) -> Experiment | None:
        """The next experiment; again the same one until it is `done`, unless another one is before it by then."""
        if self._changed:
            self._heap = [(self._key(owner), owner) for owner in self._queues if self._at[owner] < len(self._queues[owner])]
            heapq.heapify(self._heap)
            self._changed = False
        if not self._heap:
            return None
        owner = self._heap[0][1]
        return self._state.experiments[self._queues[owner][self._at[owner]][1]]

    def done(self, experiment: Experiment) -> None:
        """Excludes an experiment from being next again in this pass."""
        owner = (experiment.workspace, experiment.user)
        self._at[owner] += 1
        self._replace(owner)

    def granted(self, experiment: Experiment, slots: int) -> None:
        """`slots`: in this pool."""
        self._granted.add(experiment.experiment_id)
        self.add(experiment, slots)

    def has_reserved(self, experiment: Experiment) -> bool:
        return bool(experiment.reserved_us) and experiment.experiment_id not in self._granted

    def add(self, experiment: Experiment, slots: int) -> None:
        """Adds slots promised to its owner; negative for slots that give way."""
        owner = (experiment.workspace, experiment.user)
        self._changes[owner] = self._changes.get(owner, 0) + slots
        if not self._changed and self._heap and self._heap[0][1] == owner:
            self._replace(owner)
        else:
            # An entry inside the heap cannot get another key, so `next` makes the heap anew.
            self._changed = True

    def _replace(self, owner: Owner) -> None:
        """Replaces the first key by a new one."""
        if self._changed or not self._heap or self._heap[0][1] != owner:
            self._changed = True
        elif self._at[owner] < len(self._queues[owner]):
            heapq.heapreplace(self._heap, (self._key(owner), owner))
        else:
            heapq.heappop(self._heap)

    def _key(self, owner: Owner) -> Key:
        place, key = self._queues[owner][self._at[owner]]
        experiment = self._state.experiments[key]
        if self.has_reserved(experiment):
            return (0, float(experiment.reserved_us), place, key)
        return (1, (self._groups[owner].held + self._changes.get(owner, 0)) / self._weight(owner), place, key)

    def _weight(self, owner: Owner) -> float:
        """Weight of the workspace times that of the user."""
        weight = 1.0
        for name in (f"workspace/{owner[0]}", f"user/{owner[1]}") if self._state.shares else ():
            share = self._state.shares.get(name)
            weight *= share.weight if share is not None else 1.0
        return weight
