"""Slots of a gang. A gang that any slots will do for fits if there are enough, so whether it fits is a matter of
counting; which slots is a matter of keeping gangs together and agents whole: on one agent if one has the slots, else in one rack,
else on as few agents as possible. A gang with constraints has *rooms*: sets of agents that each could hold it. All rooms are
looked at, so it waits only if none has the slots."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tenuto.schemas.events.agent import IMAGES_LABEL
from tenuto.schemas.events.pool import AgentSlots
from tenuto.services.scheduler.state import Agent, Constraints, Experiment, Pool, State
from tenuto.services.scheduler.state.usable import usable_slots

Room = tuple[str, ...]
"""Agents, sorted."""


class _Racks(NamedTuple):
    """Every event about an agent makes the pool's agents anew, so what was found for these very ones is true."""

    agents: tuple[str, ...]
    """Agents of the pool."""
    labels: dict[str, str]
    """Agent -> the rack that it says it is in."""


def racks_of(state: State, pool: Pool) -> Mapping[str, str]:
    """Agent -> rack label, of those that have one."""
    known = pool.memo.get(_Racks)
    if known is None or known.agents is not pool.agents:
        labels = [(agent_id, state.agents[agent_id].rack) for agent_id in pool.agents]
        known = pool.memo.keep(_Racks(pool.agents, {agent_id: rack for agent_id, rack in labels if rack}))
    return known.labels


class FreeSlots:
    """The free slots of a pool during one pass. Taking a gang is a search in the sorted agents, however many there are."""

    def __init__(
        self,
        idle: tuple[tuple[int, str], ...],
        count: int,
        slots_of: Callable[[str], tuple[int, ...]],
        racks: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`idle`: (number of free slots, agent), sorted; `count`: their sum; `slots_of`: an agent's free slots, sorted; `racks`:
        agent -> rack."""
        self._racks = racks
        self._by_rack: dict[str, dict[str, int]] | None = None
        """Rack -> its agents with free slots, and how many: found on first use."""
        self._counts: dict[str, int] | None = None
        """Agent -> its free slots, of those that have any: found on first use."""
        self.shown = 0
        """Number of times that slots kept back became usable again."""
        self._idle = list(idle)
        self._slots_of = slots_of
        self._rest: dict[str, tuple[int, ...]] = {}
        self._hidden: dict[str, int] = {}
        self.count = count

    def on(self, agent_id: str) -> int:
        """Free slots of one agent."""
        return self.counts.get(agent_id, 0)

    @property
    def counts(self) -> dict[str, int]:
        """Agent -> its free slots, of those that have any."""
        if self._counts is None:
            self._counts = {agent_id: count for count, agent_id in self._idle}
        return self._counts

    def take(self, wanted: int) -> tuple[AgentSlots, ...]:
        """`wanted` slots, which must be free, in rank order: on the one agent where they leave least over, or else in the one
        rack where they do, and there or else anywhere on as few agents as possible (whole agents first, largest first; the rest
        where it leaves least over). Ties: by agent id."""
        assert 0 < wanted <= self.count
        rack = self._rack_for(wanted) if self._idle[-1][0] < wanted else None
        return self._pack(self._idle, wanted) if rack is None else self.take_in(rack, wanted)

    def take_in(self, room: Iterable[str], wanted: int, *, spread: bool = False) -> tuple[AgentSlots, ...]:
        """Same as `take`, but on these agents only; with `spread`, evenly on as many as possible, those with most free slots
        first."""
        inside = sorted((count, agent_id) for agent_id in room if (count := self.on(agent_id)))
        if not spread:
            return self._pack(inside, wanted, everywhere=False)
        shares = _even(inside, wanted)
        return tuple(self._take_from(agent_id, share, count) for (count, agent_id), share in shares)

    def _rack_for(self, wanted: int) -> list[str] | None:
        """The agents of the rack where `wanted` slots leave least over; None where no rack has them."""
        racks = self._racks()
        if self._by_rack is None:
            self._by_rack = {}
            for count, agent_id in self._idle if racks else ():
                if agent_id in racks:
                    self._by_rack.setdefault(racks[agent_id], {})[agent_id] = count
        free = [(sum(agents.values()), rack) for rack, agents in self._by_rack.items()]
        best = min((entry for entry in free if entry[0] >= wanted), default=None)
        return list(self._by_rack[best[1]]) if best else None

    def _has_now(self, agent_id: str, count: int) -> None:
        """Keeps what is known of agents and racks true."""
        if self._counts is not None:
            self._counts[agent_id] = count
        rack = self._racks().get(agent_id) if self._by_rack is not None else None
        if self._by_rack is not None and rack is not None:
            agents = self._by_rack.setdefault(rack, {})
            if count:
                agents[agent_id] = count
            else:
                agents.pop(agent_id, None)

    def best_agent(self, wanted: int, allowed: Callable[[str], bool]) -> str | None:
        """The allowed agent where `wanted` slots leave least over."""
        # The agents are sorted by free slots, so the first allowed one leaves the fewest over.
        for at in range(bisect_left(self._idle, (wanted, "")), len(self._idle)):
            if allowed(self._idle[at][1]):
                return self._idle[at][1]
        return None

    def hide(self, room: Iterable[str]) -> list[str]:
        """Keep the free slots of these agents back. Returns those that were not hidden before, for `show`."""
        hidden = [agent_id for agent_id in room if agent_id not in self._hidden]
        for agent_id in hidden:
            count = self.on(agent_id)
            self._hidden[agent_id] = count
            if count:
                del self._idle[bisect_left(self._idle, (count, agent_id))]
                self.count -= count
                self._has_now(agent_id, 0)
        return hidden

    def hidden_on(self, agent_id: str) -> int:
        """Free slots of the agent that are kept back."""
        return self._hidden.get(agent_id, 0)

    def show(self, agents: Iterable[str]) -> None:
        for agent_id in agents:
            count = self._hidden.pop(agent_id)
            if count:
                self.shown += 1
                insort(self._idle, (count, agent_id))
                self.count += count
                self._has_now(agent_id, count)

    def _pack(self, idle: list[tuple[int, str]], wanted: int, *, everywhere: bool = True) -> tuple[AgentSlots, ...]:
        parts: list[AgentSlots] = []
        while wanted:
            # No agent id sorts before "", so this is the agent with the fewest slots that suffice.
            at = bisect_left(idle, (wanted, ""))
            if at == len(idle):
                # No agent has them all: the largest one is taken whole, and of equal ones the first by id.
                at = bisect_left(idle, (idle[-1][0], ""))
            count, agent_id = idle[at]
            # The list of a room is a copy; `_take_from` removes the entry only from the list of the whole pool.
            if not everywhere:
                del idle[at]
            parts.append(self._take_from(agent_id, min(wanted, count), count))
            wanted -= len(parts[-1].slot_ids)
        return tuple(parts)

    def _take_from(self, agent_id: str, wanted: int, count: int) -> AgentSlots:
        slots = self._rest[agent_id] if agent_id in self._rest else self._slots_of(agent_id)
        taken, rest = slots[:wanted], slots[wanted:]
        self._rest[agent_id] = rest
        self.count -= wanted
        del self._idle[bisect_left(self._idle, (count, agent_id))]
        if rest:
            insort(self._idle, (len(rest), agent_id))
        self._has_now(agent_id, len(rest))
        return AgentSlots(agent_id=agent_id, slot_ids=taken)


def _even(inside: list[tuple[int, str]], wanted: int) -> list[tuple[tuple[int, str], int]]:
    """((free, agent), slots to take) with the largest take as small as it can be; agents with more free slots first."""
    chosen: list[tuple[tuple[int, str], int]] = []
    left = len(inside)
    for entry in inside:  # fewest free slots first: what it cannot take, those behind it must
        # Rounded down, so that those with more free slots take the odd ones.
        share = min(entry[0], wanted // left)
        wanted, left = wanted - share, left - 1
        if share:
            chosen.append((entry, share))
    return sorted(chosen, key=lambda item: (-item[1], item[0][1]))


class Ground:
    """One pool during a pass: its free slots, and where gangs with constraints could go."""

    def __init__(self, state: State, pool: Pool) -> None:
        self.state, self.pool = state, pool
        self.free = FreeSlots(pool.idle, pool.free, lambda agent_id: state.agents[agent_id].free, lambda: racks_of(state, pool))
        self._rooms: dict[tuple[Constraints, int], list[Room]] = {}
        self._allowed: dict[Constraints, dict[str, bool]] = {}
        self._too_few: dict[tuple[Constraints, int], int] = {}
        """(constraints, slots) of gangs that did not fit -> `FreeSlots.shown` then: they fit when slots are shown again at the
        earliest."""

    def allows(self, constraints: Constraints, agent_id: str) -> bool:
        known = self._allowed.setdefault(constraints, {})
        if agent_id not in known:
            known[agent_id] = allows(constraints, self.state.agents[agent_id])
        return known[agent_id]

    def rooms(self, constraints: Constraints, wanted: int) -> list[Room]:
        """All sets of agents that are large enough for the gang, busy or not."""
        key = (constraints, wanted)
        if key not in self._rooms:
            allowed = [item for item in self.pool.agents if self.allows(constraints, item)]
            sizes = {item: len(usable_slots(self.pool, self.state.agents[item])) for item in allowed}
            rooms = [room for room in self._split(constraints, allowed) if room and sum(sizes[item] for item in room) >= wanted]
            self._rooms[key] = rooms
        return self._rooms[key]

    def _split(self, constraints: Constraints, allowed: Sequence[str]) -> list[Room]:
        if constraints.locality == "any":
            return [tuple(allowed)]
        if constraints.locality == "agent":
            return [(agent_id,) for agent_id in allowed]
        labels = racks_of(self.state, self.pool)
        # An agent that does not say where it is may be far from all others.
        return _grouped((labels.get(agent_id, agent_id), agent_id) for agent_id in allowed)

    def free_in(self, room: Room) -> int:
        counts = self.free.counts
        return counts.get(room[0], 0) if len(room) == 1 else sum([counts.get(agent_id, 0) for agent_id in room])

    def take(self, constraints: Constraints | None, wanted: int) -> tuple[AgentSlots, ...] | None:
        """Slots for a gang, or None if it does not fit now."""
        if wanted > self.free.count:
            return None
        if constraints is None:
            return self.free.take(wanted)
        key = (constraints, wanted)
        if self._too_few.get(key) == self.free.shown:
            return None
        slots = self._take_in_rooms(constraints, wanted)
        if slots is None:
            self._too_few[key] = self.free.shown
        return slots

    def _take_in_rooms(self, constraints: Constraints, wanted: int) -> tuple[AgentSlots, ...] | None:
        spread = constraints.placement == "spread"
        if constraints.locality == "agent" or not spread:
            agent_id = self.free.best_agent(wanted, lambda item: self.allows(constraints, item))
            if agent_id is not None or constraints.locality == "agent":
                return self.free.take_in((agent_id,), wanted) if agent_id is not None else None
        near = self.rooms(constraints, wanted)
        labels = racks_of(self.state, self.pool)
        if not spread and constraints.locality == "any" and near and labels:
            # A rack has no more free slots than the whole room, so a rack that suffices is sorted before it.
            near = [*_grouped((labels[agent_id], agent_id) for agent_id in near[0] if agent_id in labels), *near]
        fitting = [(self.free_in(room), room) for room in near]
        fitting = sorted(item for item in fitting if item[0] >= wanted)
        return self.free.take_in(fitting[0][1], wanted, spread=spread) if fitting else None

    def more(self, constraints: Constraints | None, agents: Sequence[str], wanted: int) -> tuple[AgentSlots, ...]:
        """Up to so many further slots for a gang on these agents: on them if they have any free, else in their racks."""
        room = self.around(constraints, agents)
        labels = racks_of(self.state, self.pool)
        racks = {labels[agent_id] for agent_id in agents if agent_id in labels}
        inside = self.pool.agents if room is None else room
        mates = tuple(item for item in inside if labels.get(item) in racks) if racks else ()
        parts: list[AgentSlots] = []
        for near in (tuple(sorted(agents)), mates, room):
            free = self.free.count if near is None else self.free_in(near)
            if near is None and min(wanted, free) > 0:
                parts += self.free.take(min(wanted, free))
            elif near is not None and min(wanted, free) > 0:
                parts += self.free.take_in(near, min(wanted, free))
            wanted -= min(wanted, free)
        return tuple(parts)

    def around(self, constraints: Constraints | None, agents: Sequence[str]) -> Room | None:
        """Room in which the gang may grow; None: anywhere."""
        if constraints is None:
            return None
        if constraints.locality == "agent":
            return tuple(sorted(agents))
        labels = racks_of(self.state, self.pool)
        racks = {self.state.agents[item].rack or item for item in agents}
        near = (item for item in self.pool.agents if constraints.locality == "any" or labels.get(item, item) in racks)
        return tuple(item for item in near if self.allows(constraints, item))


def _grouped(named: Iterable[tuple[str, str]]) -> list[Room]:
    """The agents of each rack. `named`: (rack, agent)."""
    racks: dict[str, list[str]] = {}
    for rack, agent_id in named:
        racks.setdefault(rack, []).append(agent_id)
    return [tuple(racks[rack]) for rack in sorted(racks)]


def allows(constraints: Constraints, agent: Agent) -> bool:
    return (
        agent.agent_id not in constraints.exclude
        and (not agent.image or agent.image == constraints.image)
        # An agent that runs in the image runs trials that name it, and starts no containers.
        and all(label in agent.labels or (label == IMAGES_LABEL and bool(agent.image)) for label in constraints.labels)
        and (not constraints.device or (bool(agent.devices) and all(constraints.device in name for name in agent.devices)))
    )


def for_trial(experiment: Experiment, number: int) -> Experiment:
    """The experiment as this trial asks: it may not go where it failed before."""
    excluded = experiment.trials[number].excluded
    if not excluded:
        return experiment
    asked = experiment.constraints or Constraints()
    return replace(experiment, constraints=replace(asked, exclude=tuple(sorted({*asked.exclude, *excluded}))))
