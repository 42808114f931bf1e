"""Which slots a gang gets. Any free slots of the pool make a gang, so whether one fits is a matter of counting; which slots
is a matter of keeping gangs together and agents whole."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from tenuto.schemas.events.pool import AgentSlots


class FreeSlots:
    """The free slots of a pool during one pass. Taking a gang is a search in the sorted agents, however many there are."""

    def __init__(self, idle: tuple[tuple[int, str], ...], count: int, slots_of: Callable[[str], tuple[int, ...]]) -> None:
        """`idle`: (number of free slots, agent), sorted; `count`: their sum; `slots_of`: an agent's free slots, sorted."""
        self._idle = idle
        self._changed: list[tuple[int, str]] | None = None
        """The idle agents, once something was taken: most passes take nothing."""
        self._slots_of = slots_of
        self._rest: dict[str, tuple[int, ...]] = {}
        self.count = count

    def take(self, wanted: int) -> tuple[AgentSlots, ...]:
        """`wanted` slots, which must be free, in rank order: on the one agent where they leave least over, or else on as few
        agents as possible (whole agents first, largest first; the rest where it leaves least over). Ties: by agent id."""
        assert 0 < wanted <= self.count
        if self._changed is None:
            self._changed = list(self._idle)
        parts: list[AgentSlots] = []
        while wanted:
            at = bisect_left(self._changed, (wanted, ""))
            if at == len(self._changed):
                at = bisect_left(self._changed, (self._changed[-1][0], ""))
            count, agent_id = self._changed.pop(at)
            parts.append(self._take_from(agent_id, min(wanted, count)))
            wanted -= len(parts[-1].slot_ids)
        return tuple(parts)

    def _take_from(self, agent_id: str, wanted: int) -> AgentSlots:
        assert self._changed is not None
        slots = self._rest[agent_id] if agent_id in self._rest else self._slots_of(agent_id)
        taken, rest = slots[:wanted], slots[wanted:]
        self._rest[agent_id] = rest
        self.count -= wanted
        if rest:
            insort(self._changed, (len(rest), agent_id))
        return AgentSlots(agent_id=agent_id, slot_ids=taken)
