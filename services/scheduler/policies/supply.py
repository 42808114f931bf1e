"""Slots of one pool during a pass: the free ones, and those that are being freed, as far as no earlier gang waits for them."""

from __future__ import annotations

from tenuto.services.scheduler.policies.decisions import Decisions
from tenuto.services.scheduler.policies.placement import Ground, Room
from tenuto.services.scheduler.state import Allocation
from tenuto.services.scheduler.state.usable import slots_coming_back, usable_slots

OnAgents = list[tuple[str, int]]
"""(agent, slots there)."""


class Supply:
    def __init__(self, decisions: Decisions) -> None:
        self._state, self._pool = decisions.state, decisions.pool
        self.ground = Ground(self._state, self._pool)
        self.free = self.ground.free
        self.claimed = False
        """True: all free slots are a part of what an earlier gang waits for."""
        self.leaving = self._pool.coming
        """Slots being freed that no earlier gang waits for."""
        self.held_agents: set[str] = set()
        """Agents whose slots are reserved for gangs that are ahead: giving way there would be in vain."""
        self.comings = 0
        """Number of times that slots of an agent began to be freed in this pass."""
        self._coming: dict[str, int] | None = None
        """Agent -> slots being freed there that no earlier gang waits for: counted on first use."""

    def available(self) -> int:
        return 0 if self.claimed else self.free.count

    # Slots that come back when an allocation leaves.

    def usable_of(self, allocation: Allocation) -> OnAgents:
        """Slots that can be used again when it has left, by agent."""
        found: OnAgents = []
        for agent_id, slot_ids in allocation.given_up:
            agent = self._state.agents[agent_id]
            usable = usable_slots(self._pool, agent)
            count = len(slot_ids) if usable is agent.slots else sum(slot in usable for slot in slot_ids)
            if count:
                found.append((agent_id, count))
        return found

    def comes_back(self, allocation: Allocation) -> int:
        """Slots that the gang that is served now can use once the allocation is released."""
        if not self.held_agents:
            return slots_coming_back(self._state, self._pool, allocation)
        return sum(count for agent_id, count in self.usable_of(allocation) if agent_id not in self.held_agents)

    # Slots being freed, by agent.

    def coming_in(self, room: Room) -> int:
        known = self._known_coming()
        return sum(known.get(agent_id, 0) for agent_id in room) if known else 0

    def comes(self, allocation: Allocation) -> None:
        """Counts the slots of an allocation that leaves from now on."""
        self.comings += 1
        self.move_coming(self.usable_of(allocation), 1)

    def move_coming(self, slots: OnAgents, sign: int) -> None:
        """Counts slots in (`sign` 1) or out (-1) of those being freed that no earlier gang waits for."""
        known = self._known_coming()
        for agent_id, count in slots:
            known[agent_id] = known.get(agent_id, 0) + sign * count
            self.leaving = max(0, self.leaving + sign * count)

    def keep(self, room: Room, coming: int) -> tuple[list[str], OnAgents]:
        """Nothing behind may use what is free there, nor so many of the slots being freed. Returns the agents whose free slots
        were not kept before, and where slots being freed are kept."""
        kept: OnAgents = []
        for agent_id in room if coming > 0 else ():
            count = min(coming, self._known_coming().get(agent_id, 0))
            if count:
                self.move_coming([(agent_id, count)], -1)
                kept.append((agent_id, count))
                coming -= count
        return self.free.hide(room), kept

    def _known_coming(self) -> dict[str, int]:
        if self._coming is None:
            self._coming = {}
            for item in self._pool.leaving:
                for agent_id, count in self.usable_of(self._state.allocations[item]):
                    self._coming[agent_id] = self._coming.get(agent_id, 0) + count
        return self._coming
