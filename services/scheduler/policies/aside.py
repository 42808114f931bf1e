"""Rooms that are held aside for gangs that wait for them.

A gang that no room has slots for waits for the room where it is expected to start first (`resources.expected_seconds` of what
runs there), else for the one that is nearest to having its slots. What is free there, and what is being freed, is held aside for
it. Those behind it may use these slots if they are expected to end before it starts, or where it leaves slots over: backfilling,
as for gangs that any slots will do for. Those from which it could have the slots back may use them in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.ids import trial_id
from tenuto.schemas.sentences.waiting import Held, NoRoomYet, Waiting
from tenuto.services.scheduler.policies.planner import Outcome, Reserved
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.policies.rooms import Promised, Rooms, Size
from tenuto.services.scheduler.state import Allocation, Constraints, Experiment, Pool, State


@dataclass
class Promise:
    """Of a held gang."""

    experiment: Experiment
    reserved: Reserved | None
    """None: nobody knows when it can start."""


@dataclass
class Aside(Promise):
    """Of a gang with a room held aside."""

    agents: list[str] = field(default_factory=list)
    """Of its room, without those that were held back already."""
    coming: Promised = field(default_factory=list)
    """Slots being freed there."""
    free: int = 0
    """Slots of these agents that are held back."""
    lent: bool = False
    """True: those served now may use it, as the gang could have the slots back."""


class RoomsAside(Rooms):
    def __init__(self, state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> None:
        super().__init__(state, pool, now_us, notes)
        self.promises: list[Promise] = []
        """Of the gangs held in this pass that any slots will do for, the most urgent first."""
        self._aside: list[Aside] = []
        self._spoken_for: set[str] = set()
        """Agents of all rooms held aside."""
        self._tried: set[tuple[Constraints | None, int, bool, tuple[int, ...]]] = set()
        """(constraints, slots, preemptible, rooms that it could use) of gangs that did not fit beside them."""
        self._stuck: dict[tuple[Constraints, int, int], Iterator[tuple[Size, Reserved | None]]] = {}
        """(constraints, slots, priority) of gangs that must wait -> the rooms that the next ones of these wait for. Slots only
        become fewer in a pass, so what did not fit for one fits for none."""

    # What a policy says.

    def bound_by(self, experiment: Experiment, promise: Promise) -> bool:
        """Whether what the experiment starts could delay that held gang: not if the gang could have the slots back."""
        return True

    # Holding rooms aside.

    def serve_in_rooms(self, experiment: Experiment, number: int) -> Outcome:
        assert experiment.constraints is not None
        if not self.claimed and self.notes is None:
            stuck = self._stuck.get((experiment.constraints, experiment.slots_per_trial, experiment.priority))
            if stuck is not None:
                self._hold(experiment, stuck)
                return "aside"
        return super().serve_in_rooms(experiment, number)

    def wait_in_rooms(self, experiment: Experiment, sizes: Sequence[Size]) -> None:
        assert experiment.constraints is not None
        key = (experiment.constraints, experiment.slots_per_trial, experiment.priority)
        stuck = self._stuck.get(key)
        if stuck is None:
            stuck = self._stuck[key] = self._in_order(experiment, sizes)
        before = list(self._aside)
        reserved = self._hold(experiment, stuck)
        if self.notes is None:
            return
        inside = {agent_id for size in sizes for agent_id in size.room}
        kept = [item for item in before if not item.lent and inside.intersection(item.agents)]
        hidden = {agent_id: self.free.hidden_on(agent_id) for item in kept for agent_id in item.agents}
        known = [Size(size.free + sum(hidden.get(item, 0) for item in size.room), size.coming, size.room) for size in sizes]
        keepers = [item.experiment.experiment_id for item in kept if any(hidden[agent_id] for agent_id in item.agents)]
        start_us, trial = (reserved.start_us, reserved.trial) if reserved else (None, "")
        most = max(size.free for size in known)
        why = NoRoomYet(
            **gang(experiment),
            slots_free_most=most,
            rooms=len(known),
            rooms_nearest=sum(size.free == most for size in known),
            kept_for=tuple(keepers),
            expected_us=start_us,
            expected_trial=trial,
        )
        self.note(experiment, why)

    def _in_order(self, experiment: Experiment, sizes: Sequence[Size]) -> Iterator[tuple[Size, Reserved | None]]:
        """Rooms with the starts that the ends of what runs there allow, the earliest first; then the others, those that are
        nearest to having the slots first. What others would give up at once for the gang, if it were enough, needs no end."""
        wanted, given = experiment.slots_per_trial, self.given_for(experiment)
        room_of = {agent_id: at for at, size in enumerate(sizes) for agent_id in size.room} if self.pool.ends else {}
        counts = [size.free + size.coming for size in sizes]
        seen: set[int] = set()
        for end_us, item in self.pool.ends:
            if item in self.taken or item in given.of:
                continue
            allocation = self.state.allocations[item]
            reached: set[int] = set()
            for agent_id, count in self.usable_of(allocation):
                at = room_of.get(agent_id)
                if at is not None and at not in seen:
                    counts[at] += count
                    reached.add(at)
            for at in sorted(reached):
                if counts[at] + given.preempted_in(sizes[at].room) >= wanted:
                    seen.add(at)
                    trial = trial_id(allocation.experiment_id, allocation.trial_number)
                    yield sizes[at], Reserved(max(end_us, self.now_us), max(0, counts[at] - wanted), trial)
        rest = [size for at, size in enumerate(sizes) if at not in seen]
        for size in sorted(rest, key=lambda size: (size.free + size.coming, size.room), reverse=True):
            yield size, None

    def _hold(self, experiment: Experiment, rooms: Iterator[tuple[Size, Reserved | None]]) -> Reserved | None:
        """Hold the next room aside that is not wholly held back already."""
        spoken_for = self._spoken_for
        for size, reserved in rooms:
            if spoken_for.issuperset(size.room):
                continue
            shared = bool(self.promises) or not spoken_for.isdisjoint(size.room)
            if shared or self.ground.free_in(size.room) != size.free or self.coming_in(size.room) != size.coming:
                reserved = None  # Another gang may be there first.
            agents, coming = self._keep(size.room, self.coming_in(size.room))
            agents = [agent_id for agent_id in agents if agent_id not in spoken_for]
            self.held_agents.update(agents)
            spoken_for.update(agents)
            self._aside.append(Aside(experiment, reserved, agents, coming, self._hidden_in(agents)))
            return reserved
        return None

    def show_aside(self) -> None:
        """Those that may be preempted may use the rooms that were held aside."""
        for item in self._aside:
            if not item.lent:
                self.free.show(item.agents)
                self._move_coming(item, 1)
                item.lent = True
        self.held_agents.clear()
        self._stuck.clear()
        self._tried.clear()

    def _comes(self, allocation: Allocation) -> None:
        super()._comes(allocation)
        self._stuck.clear()

    def _move_coming(self, item: Aside, sign: int) -> None:
        for agent_id, count in item.coming:
            self._comes_on(agent_id, sign * count)

    # Starting beside them.

    def serve(self, experiment: Experiment, number: int, used: int) -> Outcome:
        closed = self.close_lent(experiment)
        outcome = super().serve(experiment, number, used)
        self.open_lent(closed)
        return outcome

    def close_lent(self, experiment: Experiment) -> list[Aside]:
        """Hold the rooms aside again from an experiment from which the gangs could not have the slots back."""
        closed = [item for item in self._aside if item.lent and self.bound_by(experiment, item)]
        for item in closed:
            hidden = set(self.free.hide(item.agents))
            item.agents = [agent_id for agent_id in item.agents if agent_id in hidden]
            item.free = self._hidden_in(item.agents)
            self.held_agents.update(item.agents)
            self._move_coming(item, -1)
            item.lent = False
        return closed

    def open_lent(self, closed: Sequence[Aside]) -> None:
        for item in closed:
            self.free.show(item.agents)
            self.held_agents.difference_update(item.agents)
            self._move_coming(item, 1)
            item.lent = True

    def may_be_beside(self) -> bool:
        """Whether there are free slots in rooms held aside that others may use for a while."""
        return any(item.free and not item.lent and item.reserved is not None for item in self._aside)

    def _hidden_in(self, agents: Sequence[str]) -> int:
        return sum(self.free.hidden_on(agent_id) for agent_id in agents)

    def take_beside(self, experiment: Experiment, wanted: int) -> tuple[tuple[AgentSlots, ...], int, Reserved | None] | None:
        """Slots, also of rooms held aside where it delays nobody; how many were free there and elsewhere; and the earliest start
        until which it must have ended."""
        end_us = None if experiment.expected_us is None else self.now_us + experiment.expected_us
        found = [
            at
            for at, item in enumerate(self._aside)
            if item.free and not item.lent and _delays_not(item.reserved, end_us, wanted)
        ]
        beside = [self._aside[at] for at in found]
        free = self.available() + sum([item.free for item in beside])
        key = (experiment.constraints, wanted, experiment.preemptible, tuple(found))
        if not beside or wanted > free or key in self._tried:
            return None
        for item in beside:
            self.free.show(item.agents)
        slots = self.ground.take(experiment.constraints, wanted)
        for item in beside:
            self.free.hide(item.agents)
            item.free = self._hidden_in(item.agents)
        if slots is None:
            self._tried.add(key)
            return None
        first: Reserved | None = None
        for item in beside:
            assert item.reserved is not None
            inside = sum(len(part.slot_ids) for part in slots if part.agent_id in item.agents)
            if inside and end_us is not None and end_us <= item.reserved.start_us:
                first = item.reserved if first is None else min(first, item.reserved)
            elif inside:
                item.reserved = item.reserved._replace(extra=item.reserved.extra - inside)
        return slots, free, first

    def _start(self, experiment: Experiment, number: int, used: int) -> bool:
        if super()._start(experiment, number, used):
            return True
        if self.claimed or not self._aside:
            return False
        found = self.take_beside(experiment, experiment.slots_per_trial)
        if found is None:
            return False
        slots, free, first = found
        self.grant(experiment, number, used, slots, free, backfill=first)
        return True

    # What it means for others.

    def waited_for(self, allocation: Allocation, end_us: int) -> int:
        """Of the slots that come back when it ends, those that a gang with a room held aside waits for."""
        found = 0
        for agent_id, count in self.usable_of(allocation) if self._aside else ():
            for item in self._aside:
                if not item.lent and agent_id in item.agents and (item.reserved is None or end_us <= item.reserved.start_us):
                    found += count
        return found

    def changes_aside(self) -> list[tuple[int, int, str]]:
        """(time, slots that others can use from then on, trial): as gangs start in the rooms that are held aside for them."""
        found: list[tuple[int, int, str]] = []
        for item in self._aside:
            if item.reserved is None:
                continue
            gang = item.experiment
            change = -gang.slots_per_trial if item.lent else item.reserved.extra
            found.append((item.reserved.start_us, change, item.reserved.trial))
            if gang.expected_us is not None:
                trial = trial_id(gang.experiment_id, gang.waiting[0])
                found.append((item.reserved.start_us + gang.expected_us, gang.slots_per_trial, trial))
        return found

    def _note_held(self, experiment: Experiment, free: int) -> None:
        if self.notes is None:
            return
        kept = {
            item.experiment.experiment_id: sum(self.free.hidden_on(agent_id) for agent_id in item.agents)
            for item in self._aside
            if not item.lent
        }
        reserved = self.reserved_for(experiment)
        start_us, trial = (reserved.start_us, reserved.trial) if reserved else (None, "")
        why = Held(
            **gang(experiment),
            slots_free=free,
            slots_leaving=self.leaving,
            slots_kept=sum(kept.values()),
            kept_for=tuple(sorted(number for number, count in kept.items() if count)),
            slots_offered=self.pool.capacity,
            expected_us=start_us,
            expected_trial=trial,
        )
        self.note(experiment, why)


def _delays_not(reserved: Reserved | None, end_us: int | None, wanted: int) -> bool:
    return reserved is not None and ((end_us is not None and end_us <= reserved.start_us) or wanted <= reserved.extra)
