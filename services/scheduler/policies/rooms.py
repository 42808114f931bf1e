"""Gangs with constraints: each waits for the room that is nearest to having its slots, and holds back nothing outside of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tenuto.schemas.sentences.waiting import Behind, NoRoom, Soon, TooLarge, Waiting
from tenuto.services.scheduler.policies.placement import Room
from tenuto.services.scheduler.policies.planner import Outcome, Planner
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.policies.victims import Candidate, cost_of
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State
from tenuto.services.scheduler.state.usable import slots_coming_back, usable_slots

ROOMS_MAX = 32
"""Rooms with enough victims that are compared, those where the fewest slots are missing first."""
ROOMS_TRIED_MAX = 2_000
"""Rooms for whose victims an exact set is looked for, where a quick count says that there may be one."""

Promised = list[tuple[str, int]]
"""(agent, slots being freed there)."""


class Size(NamedTuple):
    """A room as it stands."""

    free: int
    coming: int
    """Slots being freed there that no earlier gang waits for."""
    room: Room


@dataclass
class Given:
    """What may be given up for a gang, by agent: at least what is there to be had."""

    preempted: dict[str, int] = field(default_factory=dict)
    shrunk: dict[str, int] = field(default_factory=dict)
    of: dict[str, Promised] = field(default_factory=dict)
    """Allocation -> what of `preempted` is its part."""

    def without(self, taken: Iterable[str]) -> None:
        for item in taken:
            for agent_id, count in self.of.pop(item, ()):
                self.preempted[agent_id] -= count

    def preempted_in(self, room: Room) -> int:
        return sum(self.preempted.get(agent_id, 0) for agent_id in room) if self.preempted else 0

    def enough(self, size: Size, wanted: int, *, preempted: bool) -> bool:
        missing = wanted - size.free - size.coming
        for agent_id in size.room:
            if missing <= 0:
                break
            missing -= self.shrunk.get(agent_id, 0) + (self.preempted.get(agent_id, 0) if preempted else 0)
        return missing <= 0


class Rooms(Planner):
    def __init__(self, state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> None:
        super().__init__(state, pool, now_us, notes)
        self._coming: dict[str, int] | None = None
        """Agent -> slots being freed there that no earlier gang waits for."""
        self._given: dict[int, Given] = {}
        self.held_agents: set[str] = set()
        """Agents whose slots are held aside for gangs that are ahead: whoever gave way there would do so in vain."""

    # What a policy says.

    def givers(self, experiment: Experiment) -> Iterable[str]:
        """Allocations among which are all that may be preempted for it."""
        return [entry[3] for entry in self.pool.victims]

    def shrinkable_on(self, experiment: Experiment) -> Promised:
        """Where elastic trials could give up slots for it, and at most how many."""
        return []

    # What is built on it (`aside`).

    def wait_in_rooms(self, experiment: Experiment, sizes: Sequence[Size]) -> None:
        """Hold back a room for a gang for which no room has slots."""
        raise NotImplementedError

    def serve_in_rooms(self, experiment: Experiment, number: int) -> Outcome:
        assert experiment.constraints is not None
        wanted = experiment.slots_per_trial
        rooms = self.ground.rooms(experiment.constraints, wanted)
        if not rooms:
            kind = TooLarge if wanted > self.pool.capacity else NoRoom
            self.note(experiment, kind(**gang(experiment), slots_offered=self.pool.capacity))
            return "never"
        if self.claimed:
            self.note(experiment, Behind(**gang(experiment)))
            return "held"
        sizes = [Size(self.ground.free_in(room), self.coming_in(room), room) for room in rooms]
        best = max(sizes, key=lambda size: (size.free + size.coming, size.room))
        if best.free + best.coming >= wanted:
            self._keep(best.room, wanted - best.free)
            self.note(experiment, Soon(**gang(experiment), slots_free=best.free))
            return "soon"
        if self._make_way_in(experiment, number, sizes):
            return "soon"
        self.wait_in_rooms(experiment, sizes)
        return "aside"

    def _make_way_in(self, experiment: Experiment, number: int, sizes: Sequence[Size]) -> bool:
        """Whether others give it its slots in one of the rooms: by shrinking, else at the least cost."""
        wanted = experiment.slots_per_trial
        given = self.given_for(experiment)
        if not given.preempted and not given.shrunk:
            return False
        near = sorted(sizes, key=lambda size: (-size.free - size.coming, size.room))
        shrinking = [size for size in near if given.shrunk and given.enough(size, wanted, preempted=False)]
        for size in shrinking[:ROOMS_MAX]:
            if self.shrink_for(experiment, wanted - size.free - size.coming, size.room):
                self._keep(size.room, size.coming)
                return True
        best: tuple[tuple[int, ...], Size, list[Candidate], int] | None = None
        compared = 0
        for size in [size for size in near if given.enough(size, wanted, preempted=True)][:ROOMS_TRIED_MAX]:
            missing = wanted - size.free - size.coming
            chosen = self.victims_for(experiment, missing, self.candidates_in(experiment, size.room), size.room)
            if not chosen:
                continue
            costs = [cost_of(victim, self.now_us) for victim in chosen]
            total = tuple(sum(column) for column in zip(*costs, strict=True))
            if best is None or total < best[0]:
                best = (total, size, chosen, missing)
            compared += 1
            if compared == ROOMS_MAX:
                break
        if best is None:
            return False
        _, size, chosen, missing = best
        self.preempt(experiment, number, chosen, size.free, size.coming, missing)
        freed = sum(victim.freed for victim in chosen)
        self.shrink_for(experiment, missing - freed, size.room)
        for victim in chosen:
            self._comes(victim.allocation)
        self._keep(size.room, size.coming + min(missing, freed))
        return True

    def given_for(self, experiment: Experiment) -> Given:
        """The same for all of one priority. During a pass it only becomes less."""
        given = self._given.get(experiment.priority)
        if given is None:
            given = self._given[experiment.priority] = Given()
            for item in self.givers(experiment):
                allocation = self.state.allocations[item]
                if item in self.taken or allocation.leaving or self.rank(experiment, allocation) is None:
                    continue
                given.of[item] = self.usable_of(allocation)
                for agent_id, count in given.of[item]:
                    given.preempted[agent_id] = given.preempted.get(agent_id, 0) + count
            for agent_id, count in self.shrinkable_on(experiment):
                given.shrunk[agent_id] = given.shrunk.get(agent_id, 0) + count
        given.without(sorted(self.taken.intersection(given.of)))
        return given

    # Keeping slots.

    def _keep(self, room: Room, coming: int) -> tuple[list[str], Promised]:
        """Nothing behind may use what is free there, nor so many of the slots being freed."""
        promised: Promised = []
        for agent_id in room if coming > 0 else ():
            count = min(coming, self._coming_on(agent_id))
            if count:
                self._comes_on(agent_id, -count)
                promised.append((agent_id, count))
                coming -= count
        return self.free.hide(room), promised

    def _comes(self, allocation: Allocation) -> None:
        """It leaves from now on."""
        for agent_id, count in self.usable_of(allocation):
            self._comes_on(agent_id, count)

    def comes_back(self, allocation: Allocation) -> int:
        """Slots that the gang that is served now can use once the allocation is released."""
        if not self.held_agents:
            return slots_coming_back(self.state, self.pool, allocation)
        return sum(count for agent_id, count in self.usable_of(allocation) if agent_id not in self.held_agents)

    def usable_of(self, allocation: Allocation) -> Promised:
        """Where slots can be used again when it has left."""
        found: Promised = []
        for agent_id, slot_ids in allocation.given_up:
            agent = self.state.agents[agent_id]
            usable = usable_slots(self.pool, agent)
            count = len(slot_ids) if usable is agent.slots else sum(slot in usable for slot in slot_ids)
            if count:
                found.append((agent_id, count))
        return found

    def _comes_on(self, agent_id: str, count: int) -> None:
        known = self._known_coming()
        known[agent_id] = known.get(agent_id, 0) + count
        self.leaving = max(0, self.leaving + count)

    def _coming_on(self, agent_id: str) -> int:
        return self._known_coming().get(agent_id, 0)

    def coming_in(self, room: Room) -> int:
        known = self._known_coming()
        return sum(known.get(agent_id, 0) for agent_id in room) if known else 0

    def _known_coming(self) -> dict[str, int]:
        if self._coming is None:
            self._coming = {}
            for item in self.pool.leaving:
                for agent_id, count in self.usable_of(self.state.allocations[item]):
                    self._coming[agent_id] = self._coming.get(agent_id, 0) + count
        return self._coming

    def candidates_in(self, experiment: Experiment, room: Room) -> list[Candidate]:
        """Running gangs there that may be preempted for it."""
        found: dict[str, Candidate] = {}
        for agent_id in room:
            if agent_id in self.held_agents:
                continue
            agent = self.state.agents[agent_id]
            usable = usable_slots(self.pool, agent)
            for slot, item in agent.used:
                allocation = self.state.allocations[item]
                if slot not in usable or allocation.leaving or item in self.taken:
                    continue
                rank = found[item].rank if item in found else self.rank(experiment, allocation)
                if rank is not None:
                    freed = found[item].freed + 1 if item in found else 1
                    found[item] = Candidate(allocation, freed, rank)
        return [found[item] for item in sorted(found)]
