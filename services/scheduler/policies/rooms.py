"""Slots for a gang with constraints that does not fit: in the room where slots are being freed already, where elastic trials can
give them up, or where the cheapest set of gangs is preempted. Nothing outside of that room is held back for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tenuto.services.scheduler.policies.decisions import TrialDemand
from tenuto.services.scheduler.policies.placement import Room
from tenuto.services.scheduler.policies.reclaiming import Reclaiming
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.shrinking import Shrinking
from tenuto.services.scheduler.policies.supply import OnAgents
from tenuto.services.scheduler.policies.victims import Candidate, cost_of
from tenuto.services.scheduler.state import Experiment

ROOMS_MAX = 32
"""Rooms with enough victims that are compared, those where the fewest slots are missing first."""
ROOMS_TRIED_MAX = 2_000
"""Rooms for whose victims an exact set is looked for, where a quick count says that there may be one."""


class Size(NamedTuple):
    """A room with its present slots."""

    free: int
    coming: int
    """Slots being freed there that no earlier gang waits for."""
    room: Room

    @property
    def soon(self) -> int:
        return self.free + self.coming


@dataclass
class Given:
    """Slots that may be given up for a gang, by agent: at least as many as can be freed."""

    preempted: dict[str, int] = field(default_factory=dict)
    shrunk: dict[str, int] = field(default_factory=dict)
    of: dict[str, OnAgents] = field(default_factory=dict)
    """Allocation -> its part of `preempted`."""

    def without(self, taken: Iterable[str]) -> None:
        for item in taken:
            for agent_id, count in self.of.pop(item, ()):
                self.preempted[agent_id] -= count

    def preempted_in(self, room: Room) -> int:
        return sum(self.preempted.get(agent_id, 0) for agent_id in room) if self.preempted else 0

    def enough(self, size: Size, wanted: int, *, preempted: bool) -> bool:
        missing = wanted - size.soon
        for agent_id in size.room:
            if missing <= 0:
                break
            missing -= self.shrunk.get(agent_id, 0) + (self.preempted.get(agent_id, 0) if preempted else 0)
        return missing <= 0


class PlacementRooms:
    """Slots in rooms of the pool, and slots that others would give up in them. During one pass."""

    def __init__(self, rules: PolicyRules, shrinking: Shrinking, reclaiming: Reclaiming) -> None:
        self._rules, self._shrinking, self._reclaiming = rules, shrinking, reclaiming
        self._decisions, self._supply = rules.decisions, rules.supply
        self._given: dict[int, Given] = {}
        """Priority -> slots that may be given up for gangs of it."""

    def of(self, demand: TrialDemand) -> list[Room]:
        """All rooms that are large enough for the gang, busy or not."""
        assert demand.experiment.constraints is not None
        return self._supply.ground.rooms(demand.experiment.constraints, demand.wanted)

    def sizes(self, demand: TrialDemand) -> list[Size]:
        """Same as `of`, with their present slots."""
        ground, supply = self._supply.ground, self._supply
        return [Size(ground.free_in(room), supply.coming_in(room), room) for room in self.of(demand)]

    def make_way(self, demand: TrialDemand, sizes: Sequence[Size]) -> bool:
        """True if others give it its slots in one of the rooms: by shrinking, else at the least cost."""
        given = self.given_for(demand.experiment)
        if not given.preempted and not given.shrunk:
            return False
        near = sorted(sizes, key=lambda size: (-size.soon, size.room))
        return self._shrink(demand, near, given) or self._preempt(demand, near, given)

    def _shrink(self, demand: TrialDemand, near: Sequence[Size], given: Given) -> bool:
        enough = [size for size in near if given.shrunk and given.enough(size, demand.wanted, preempted=False)]
        for size in enough[:ROOMS_MAX]:
            if self._shrinking.shrink_for(demand.experiment, demand.wanted - size.soon, size.room):
                self._supply.keep(size.room, size.coming)
                return True
        return False

    def _preempt(self, demand: TrialDemand, near: Sequence[Size], given: Given) -> bool:
        best: tuple[tuple[int, ...], Size, list[Candidate]] | None = None
        """(cost, room, gangs that leave)."""
        compared = 0
        for size in [size for size in near if given.enough(size, demand.wanted, preempted=True)][:ROOMS_TRIED_MAX]:
            chosen = self._reclaiming.victims_for(demand.experiment, demand.wanted - size.soon, size.room)
            if not chosen:
                continue
            costs = [cost_of(victim, self._decisions.now_us) for victim in chosen]
            total = tuple(sum(column) for column in zip(*costs, strict=True))
            if best is None or total < best[0]:
                best = (total, size, chosen)
            compared += 1
            if compared == ROOMS_MAX:
                break
        if best is None:
            return False
        _, size, chosen = best
        missing, freed = demand.wanted - size.soon, sum(victim.freed for victim in chosen)
        self._reclaiming.preempt(demand, chosen, size.free, size.coming, missing)
        self._shrinking.shrink_for(demand.experiment, missing - freed, size.room)
        for victim in chosen:
            self._supply.comes(victim.allocation)
        # Called after `comes`, which counts the victims' slots as being freed; what is beyond the need stays for others.
        self._supply.keep(size.room, size.coming + min(missing, freed))
        return True

    def given_for(self, experiment: Experiment) -> Given:
        """The same for all of one priority. During a pass it only becomes less."""
        taken, given = self._decisions.taken, self._given.get(experiment.priority)
        if given is None:
            given = self._given[experiment.priority] = Given()
            for item in self._rules.givers(experiment):
                allocation = self._decisions.state.allocations[item]
                if item in taken or allocation.leaving or self._rules.rank(experiment, allocation) is None:
                    continue
                given.of[item] = self._supply.usable_of(allocation)
                for agent_id, count in given.of[item]:
                    given.preempted[agent_id] = given.preempted.get(agent_id, 0) + count
            for agent_id, count in self._shrinking.shrinkable_on(experiment):
                given.shrunk[agent_id] = given.shrunk.get(agent_id, 0) + count
        given.without(sorted(taken.intersection(given.of)))
        return given
