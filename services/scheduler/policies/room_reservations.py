"""Rooms that are reserved for gangs with constraints that wait for them.

A gang that no room has slots for waits for the room where it is expected to start first (`resources.expected_seconds` of what
runs there), else for the one that is nearest to having its slots. What is free there, and what is being freed, is kept for it.
Those behind it may use these slots if they are expected to end before it starts, or where it leaves slots over: backfilling,
as for gangs that any slots will do for. Those from which it could have the slots back may use them in any case: for them the
reservation is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.ids import trial_id
from tenuto.schemas.sentences.waiting import NoRoomYet
from tenuto.services.scheduler.policies.decisions import TrialDemand
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.policies.rooms import PlacementRooms, Size
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.supply import OnAgents
from tenuto.services.scheduler.state import Allocation, Constraints, Experiment


class PromisedStart(NamedTuple):
    """Start that is promised to a held gang."""

    start_us: int
    extra: int
    """Slots that are free at that time and that it does not need."""
    trial: str = ""
    """Trial that gives it the last of its slots when it ends."""

    def delayed_by(self, end_us: int | None, slots: int) -> bool:
        """True if a trial that runs on so many slots until `end_us` would delay it. `end_us`: None if unknown."""
        return not (self.ends_before(end_us) or slots <= self.extra)

    def ends_before(self, end_us: int | None) -> bool:
        return end_us is not None and end_us <= self.start_us


@dataclass
class HeldGang:
    """A gang that waits, and holds slots back."""

    experiment: Experiment
    start: PromisedStart | None
    """Promised start; None: it is not known when it can start."""

    def use_extra(self, slots: int) -> None:
        """Counts slots that it leaves over as used by a gang beside it."""
        assert self.start is not None
        self.start = self.start._replace(extra=self.start.extra - slots)


@dataclass
class HeldRoom(HeldGang):
    agents: list[str] = field(default_factory=list)
    """Agents of its room, without those that were reserved already."""
    coming: OnAgents = field(default_factory=list)
    """Slots being freed there."""
    free: int = 0
    """Free slots of these agents."""
    open: bool = False
    """True: those served now may use it, as the gang could have the slots back."""


class RoomReservations:
    def __init__(self, rules: PolicyRules, rooms: PlacementRooms, held: Sequence[HeldGang]) -> None:
        """`held`: the gangs that hold all slots back."""
        self._rules, self._rooms, self._held = rules, rooms, held
        self._decisions, self._supply = rules.decisions, rules.supply
        self._reserved: list[HeldRoom] = []
        self._reserved_agents: set[str] = set()
        """Agents of all reserved rooms."""
        self._tried: set[tuple[Constraints | None, int, bool, tuple[int, ...]]] = set()
        """(constraints, slots, preemptible, rooms that it could use) of gangs that did not fit beside them."""
        self._waiting: dict[tuple[Constraints, int, int], Iterator[tuple[Size, PromisedStart | None]]] = {}
        """(constraints, slots, priority) of gangs that must wait -> the rooms that the next ones of these wait for. Slots only
        become fewer in a pass, so what did not fit for one fits for none."""
        self._waiting_since = 0
        """`Supply.comings` when these were found: where slots begin to be freed, they are found anew."""

    # Reserving.

    def reserve_as_before(self, demand: TrialDemand) -> bool:
        """Reserves the next room if another gang of this kind waits already; False with `notes`, as each gang gets its reason."""
        known = self._known(demand)
        if self._supply.claimed or self._decisions.notes is not None or known is None:
            return False
        self._reserve(demand.experiment, known)
        return True

    def reserve(self, demand: TrialDemand, sizes: Sequence[Size]) -> None:
        """Reserve a room for a gang for which no room has slots."""
        known = self._known(demand)
        if known is None:
            known = self._waiting[_kind(demand)] = self._in_order(demand, sizes)
        before = list(self._reserved)
        start = self._reserve(demand.experiment, known)
        if self._decisions.notes is not None:
            self._note(demand.experiment, sizes, before, start)

    def _known(self, demand: TrialDemand) -> Iterator[tuple[Size, PromisedStart | None]] | None:
        if self._waiting_since != self._supply.comings:
            self._waiting.clear()
            self._waiting_since = self._supply.comings
        return self._waiting.get(_kind(demand))

    def _in_order(self, demand: TrialDemand, sizes: Sequence[Size]) -> Iterator[tuple[Size, PromisedStart | None]]:
        """Rooms with the starts that the ends of what runs there allow, the earliest first; then the others, those that are
        nearest to having the slots first. What others would give up at once for the gang, if it were enough, needs no end."""
        state, pool, now_us = self._decisions.state, self._decisions.pool, self._decisions.now_us
        wanted, given = demand.wanted, self._rooms.given_for(demand.experiment)
        room_of = {agent_id: at for at, size in enumerate(sizes) for agent_id in size.room} if pool.ends else {}
        counts = [size.soon for size in sizes]
        seen: set[int] = set()
        for end_us, item in pool.ends:
            # These need no expected end: they leave already, or could be preempted for the gang (added below).
            if item in self._decisions.taken or item in given.of:
                continue
            allocation = state.allocations[item]
            reached: set[int] = set()
            for agent_id, count in self._supply.usable_of(allocation):
                at = room_of.get(agent_id)
                if at is not None and at not in seen:
                    counts[at] += count
                    reached.add(at)
            for at in sorted(reached):
                if counts[at] + given.preempted_in(sizes[at].room) >= wanted:
                    seen.add(at)
                    trial = allocation.trial_id
                    yield sizes[at], PromisedStart(max(end_us, now_us), max(0, counts[at] - wanted), trial)
        rest = [size for at, size in enumerate(sizes) if at not in seen]
        for size in sorted(rest, key=lambda size: (size.soon, size.room), reverse=True):
            yield size, None

    def _reserve(self, experiment: Experiment, rooms: Iterator[tuple[Size, PromisedStart | None]]) -> PromisedStart | None:
        """The next of these rooms that is not wholly reserved already."""
        reserved, supply = self._reserved_agents, self._supply
        for size, start in rooms:
            if reserved.issuperset(size.room):
                continue
            shared = bool(self._held) or not reserved.isdisjoint(size.room)
            if shared or supply.ground.free_in(size.room) != size.free or supply.coming_in(size.room) != size.coming:
                start = None  # Another gang may be there first.
            agents, coming = supply.keep(size.room, supply.coming_in(size.room))
            agents = [agent_id for agent_id in agents if agent_id not in reserved]
            supply.held_agents.update(agents)
            reserved.update(agents)
            self._reserved.append(HeldRoom(experiment, start, agents, coming, self._free_on(agents)))
            return start
        return None

    def _free_on(self, agents: Sequence[str]) -> int:
        return sum(self._supply.free.hidden_on(agent_id) for agent_id in agents)

    # Who may use reserved rooms.

    def open_all(self) -> None:
        """Opens all reserved rooms: only gangs that give the slots back on demand are served from now on."""
        self.reopen([item for item in self._reserved if not item.open])
        self._supply.held_agents.clear()
        # A gang that did not fit while the rooms were closed may fit now.
        self._waiting.clear()
        self._tried.clear()

    def reopen(self, closed: Sequence[HeldRoom]) -> None:
        for item in closed:
            self._supply.free.show(item.agents)
            self._supply.held_agents.difference_update(item.agents)
            self._supply.move_coming(item.coming, 1)
            item.open = True

    def close_for(self, experiment: Experiment) -> list[HeldRoom]:
        """Closes open rooms, until `reopen`, to an experiment from which the gangs could not get the slots back."""
        closed = [item for item in self._reserved if item.open and self._rules.bound_by(experiment, item.experiment)]
        for item in closed:
            hidden = set(self._supply.free.hide(item.agents))
            item.agents = [agent_id for agent_id in item.agents if agent_id in hidden]
            item.free = self._free_on(item.agents)
            self._supply.held_agents.update(item.agents)
            self._supply.move_coming(item.coming, -1)
            item.open = False
        return closed

    def may_lend(self) -> bool:
        """True if there are free slots in reserved rooms that others may use for a while."""
        return any(item.free and not item.open and item.start is not None for item in self._reserved)

    def take(self, demand: TrialDemand) -> tuple[tuple[AgentSlots, ...], int, PromisedStart | None] | None:
        """Slots, also of reserved rooms where it delays no gang; the number that was free there and elsewhere; and the earliest
        start until which it must have ended."""
        if not self._reserved or self._supply.claimed:
            return None
        experiment, wanted = demand.experiment, demand.wanted
        end_us = None if experiment.expected_us is None else self._decisions.now_us + experiment.expected_us
        found = [
            at
            for at, item in enumerate(self._reserved)
            if item.free and not item.open and item.start is not None and not item.start.delayed_by(end_us, wanted)
        ]
        usable = [self._reserved[at] for at in found]
        free = self._supply.available() + sum([item.free for item in usable])
        key = (experiment.constraints, wanted, experiment.preemptible, tuple(found))
        if not usable or wanted > free or key in self._tried:
            return None
        # The search sees only slots that are shown, so reserved ones are shown for its time.
        for item in usable:
            self._supply.free.show(item.agents)
        slots = self._supply.ground.take(experiment.constraints, wanted)
        for item in usable:
            self._supply.free.hide(item.agents)
            item.free = self._free_on(item.agents)
        if slots is None:
            self._tried.add(key)
            return None
        first: PromisedStart | None = None
        for item in usable:
            assert item.start is not None
            inside = sum(len(part.slot_ids) for part in slots if part.agent_id in item.agents)
            if inside and item.start.ends_before(end_us):
                first = item.start if first is None else min(first, item.start)
            elif inside:
                item.use_extra(inside)
        return slots, free, first

    # What they mean for gangs that any slots will do for.

    def waited_for(self, allocation: Allocation, end_us: int) -> int:
        """Slots that come back when the allocation ends and that a gang with a reserved room waits for."""
        found = 0
        for agent_id, count in self._supply.usable_of(allocation) if self._reserved else ():
            for item in self._reserved:
                if not item.open and agent_id in item.agents and (item.start is None or end_us <= item.start.start_us):
                    found += count
        return found

    def changes(self) -> list[tuple[int, int, str]]:
        """(time, slots that others can use from then on, trial): as gangs start in their reserved rooms, and end."""
        found: list[tuple[int, int, str]] = []
        for item in self._reserved:
            if item.start is not None:
                change = -item.experiment.slots_per_trial if item.open else item.start.extra
                found.append((item.start.start_us, change, item.start.trial))
                found += end_of(item.experiment, item.start)
        return found

    def kept(self) -> dict[int, int]:
        """Experiment -> free slots that are kept for it."""
        return {item.experiment.experiment_id: self._free_on(item.agents) for item in self._reserved if not item.open}

    def _note(
        self, experiment: Experiment, sizes: Sequence[Size], before: Sequence[HeldRoom], start: PromisedStart | None
    ) -> None:
        """Notes why the experiment waits for a room. `before`: rooms reserved ahead of it."""
        inside = {agent_id for size in sizes for agent_id in size.room}
        ahead = [item for item in before if not item.open and inside.intersection(item.agents)]
        hidden = {agent_id: self._supply.free.hidden_on(agent_id) for item in ahead for agent_id in item.agents}
        free = [size.free + sum(hidden.get(agent_id, 0) for agent_id in size.room) for size in sizes]
        why = NoRoomYet(
            **gang(experiment),
            slots_free_most=max(free),
            rooms=len(free),
            rooms_nearest=free.count(max(free)),
            kept_for=tuple(item.experiment.experiment_id for item in ahead if any(hidden[agent_id] for agent_id in item.agents)),
            expected_us=start.start_us if start else None,
            expected_trial=start.trial if start else "",
        )
        self._decisions.note(experiment, why)


def end_of(experiment: Experiment, start: PromisedStart) -> list[tuple[int, int, str]]:
    """(time, slots, trial) of the end of a gang that starts then, if it is expected to end."""
    if experiment.expected_us is None:
        return []
    trial = trial_id(experiment.experiment_id, experiment.waiting[0])
    return [(start.start_us + experiment.expected_us, experiment.slots_per_trial, trial)]


def _kind(demand: TrialDemand) -> tuple[Constraints, int, int]:
    assert demand.experiment.constraints is not None
    return (demand.experiment.constraints, demand.wanted, demand.experiment.priority)
