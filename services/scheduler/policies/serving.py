"""Service of a waiting gang when it is its turn: the phases of the tables below, one after the other, until one has an answer.

What is being freed for a gang, and what it is held for, nothing behind it may take: it is a part of what the gang waits for. A
gang with constraints waits for one room, and holds back nothing outside of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from tenuto.schemas.sentences.waiting import Behind, Soon, TooLarge
from tenuto.services.scheduler.policies.decisions import TrialDemand, demand_of
from tenuto.services.scheduler.policies.feasibility import no_room
from tenuto.services.scheduler.policies.quotas import Quotas
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.policies.reclaiming import Reclaiming
from tenuto.services.scheduler.policies.reservations import Reservations
from tenuto.services.scheduler.policies.rooms import PlacementRooms
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.shrinking import Shrinking
from tenuto.services.scheduler.policies.starting import Starting
from tenuto.services.scheduler.state import Experiment

Outcome = Literal["limit", "granted", "lent", "never", "soon", "held", "holds_room"]
"""limit: its owner may use no more. lent: granted slots of another pool. never: no agents of the pool could hold it. soon: its
slots are being freed. held: it waits and holds slots back. holds_room: it waits, and holds back only a room of its own."""
SATISFIED = ("granted", "lent", "soon")
"""Outcomes after which the experiment's next trial may be served."""
ELSEWHERE = ("never", "holds_room")
"""Outcomes that one trial of an experiment may have and another not, because of the agents where it failed."""


class Served(NamedTuple):
    outcome: Outcome
    slots: int = 0
    """Slots that it has, or that are being freed for it."""


class Serving:
    def __init__(
        self,
        rules: PolicyRules,
        quotas: Quotas,
        shrinking: Shrinking,
        reclaiming: Reclaiming,
        rooms: PlacementRooms,
        reservations: Reservations,
        starting: Starting,
    ) -> None:
        self._decisions, self._supply, self._pool = rules.decisions, rules.supply, rules.pool
        self._quotas, self._shrinking, self._reclaiming = quotas, shrinking, reclaiming
        self._rooms, self._reservations, self._starting = rooms, reservations, starting
        self.blocked = False
        """True: a gang waits that could use slots as soon as there are enough."""

    def serve(self, experiment: Experiment, number: int, used: int) -> Served:
        """Places the experiment's waiting trial. `used`: slots that the experiment holds or was promised."""
        demand = demand_of(experiment, number, used)
        closed = self._reservations.in_rooms.close_for(experiment)
        served = self._starts(demand) or self._waits(demand)
        self._reservations.in_rooms.reopen(closed)
        return served

    def _starts(self, demand: TrialDemand) -> Served | None:
        """None: it waits."""
        if self._quotas.over_limit(demand.experiment, demand.used):
            self._shrinking.shrink_inside(demand.experiment)
            return Served("limit")
        for outcome, start in STARTS:
            slots = start(self._starting, demand)
            if slots:
                return Served(outcome, slots)
        return None

    def _waits(self, demand: TrialDemand) -> Served:
        for phase in WAITS_FOR_ANY_SLOTS if demand.experiment.constraints is None else WAITS_FOR_A_ROOM:
            served = phase(self, demand)
            if served is not None:
                self.blocked = self.blocked or served.outcome != "never"
                return served
        raise AssertionError("the last phase always has an answer")

    def _never(self, demand: TrialDemand) -> Served | None:
        too_large = demand.wanted > self._pool.capacity
        if not too_large and (demand.experiment.constraints is None or self._rooms.of(demand)):
            return None
        offered = self._pool.capacity
        why = (
            TooLarge(**gang(demand.experiment), slots_offered=offered)
            if too_large
            else no_room(self._decisions.state, self._pool, demand.experiment, offered)
        )
        self._decisions.note(demand.experiment, why)
        return Served("never")

    # Waiting for any slots.

    def _slots_are_freed(self, demand: TrialDemand) -> Served | None:
        free = self._supply.available()
        # An elastic trial waits for the size that it should have if it can, else for its least.
        for wanted in sorted({self._starting.size_wanted(demand), demand.wanted}, reverse=True):
            if self._reclaiming.wait_for(demand, wanted, free):
                self._supply.claimed = True
                return Served("soon", wanted)
        return None

    def _hold(self, demand: TrialDemand) -> Served:
        self._reservations.note_held(demand.experiment, self._supply.available())
        return Served("held")

    # Waiting for slots in one room.

    def _next_room(self, demand: TrialDemand) -> Served | None:
        return Served("holds_room") if self._reservations.in_rooms.reserve_as_before(demand) else None

    def _behind(self, demand: TrialDemand) -> Served | None:
        if not self._supply.claimed:
            return None
        self._decisions.note(demand.experiment, Behind(**gang(demand.experiment)))
        return Served("held")

    def _in_a_room(self, demand: TrialDemand) -> Served:
        sizes = self._rooms.sizes(demand)
        best = max(sizes, key=lambda size: (size.soon, size.room))
        if best.soon >= demand.wanted:
            # The whole free part is kept for it, and of what is being freed only as much as it needs.
            self._supply.keep(best.room, demand.wanted - best.free)
            self._decisions.note(demand.experiment, Soon(**gang(demand.experiment), slots_free=best.free))
        elif not self._rooms.make_way(demand, sizes):
            self._reservations.in_rooms.reserve(demand, sizes)
            return Served("holds_room")
        return Served("soon", demand.wanted)


STARTS: tuple[tuple[Outcome, Callable[[Starting, TrialDemand], int]], ...] = (
    ("granted", Starting.on_free_slots),
    ("granted", Starting.on_reserved_slots),
    ("lent", Starting.on_lent_slots),
)
"""Ways of starting a gang, tried in this order: each returns the slots that it starts on, 0 if it does not."""
WAITS_FOR_ANY_SLOTS: tuple[Callable[[Serving, TrialDemand], Served | None], ...] = (
    Serving._never,
    Serving._slots_are_freed,
    Serving._hold,
)
WAITS_FOR_A_ROOM: tuple[Callable[[Serving, TrialDemand], Served | None], ...] = (
    Serving._next_room,
    Serving._never,
    Serving._behind,
    Serving._in_a_room,
)
"""Phases that say why a gang waits that does not start; after None the next phase is tried."""
