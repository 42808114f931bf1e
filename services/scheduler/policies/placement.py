"""Which slots a gang gets. Any free slots of the pool make a gang, so whether one fits is a matter of counting; which slots
is a matter of keeping gangs together and agents whole."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from tenuto.schemas.events.pool import AgentSlots


class FreeSlots:
    """The free slots of a pool during one pass. Taking a gang costs the size of the largest agent, not the number of agents."""

    def __init__(self, agents: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        self._slots: dict[str, tuple[int, ...]] = {}
        self._by_count: dict[int, list[str]] = {}
        self.count = 0
        for agent_id, slot_ids in agents:
            if slot_ids:
                self._slots[agent_id] = slot_ids
                self._by_count.setdefault(len(slot_ids), []).append(agent_id)
                self.count += len(slot_ids)
        for heap in self._by_count.values():
            heapify(heap)

    def take(self, wanted: int) -> tuple[AgentSlots, ...]:
        """`wanted` slots, which must be free, in rank order: on the one agent where they leave least over, or else on as few
        agents as possible (whole agents first, largest first; the rest where it leaves least over). Ties: by agent id."""
        assert 0 < wanted <= self.count
        parts: list[AgentSlots] = []
        while wanted:
            fitting = [count for count in self._by_count if count >= wanted]
            count = min(fitting) if fitting else max(self._by_count)
            parts.append(self._take_from(count, min(wanted, count)))
            wanted -= len(parts[-1].slot_ids)
        return tuple(parts)

    def _take_from(self, count: int, wanted: int) -> AgentSlots:
        heap = self._by_count[count]
        agent_id = heappop(heap)
        if not heap:
            del self._by_count[count]
        taken, rest = self._slots[agent_id][:wanted], self._slots[agent_id][wanted:]
        self._slots[agent_id] = rest
        self.count -= wanted
        if rest:
            heappush(self._by_count.setdefault(len(rest), []), agent_id)
        return AgentSlots(agent_id=agent_id, slot_ids=taken)
