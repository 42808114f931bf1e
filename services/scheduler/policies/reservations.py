"""Reserved starts of gangs that are held.

A held gang has a reserved start where the ends of enough running gangs are expected (`resources.expected_seconds`). Several gangs
may be held, each at a priority of its own; a later promise reckons with the slots of the earlier ones and replaces none. Those
with constraints have a room reserved (`room_reservations`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.sentences.waiting import SlotsHeld as HeldBack
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.policies.room_reservations import HeldGang, PromisedStart, RoomReservations, end_of
from tenuto.services.scheduler.policies.rooms import PlacementRooms
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.shrinking import Shrinking
from tenuto.services.scheduler.state import Experiment
from tenuto.services.scheduler.state.usable import slots_coming_back

Change = tuple[int, int, str]
"""(time, slots that can be used from then on, trial)."""


class Reservations:
    def __init__(self, rules: PolicyRules, shrinking: Shrinking, rooms: PlacementRooms) -> None:
        self._rules, self._shrinking, self._decisions, self._supply = rules, shrinking, rules.decisions, rules.supply
        self._state, self._pool, self._now_us = rules.state, rules.pool, rules.now_us
        self.held: list[HeldGang] = []
        """The gangs held in this pass that any slots will do for, the most urgent first."""
        self.in_rooms = RoomReservations(rules, rooms, self.held)

    def reserve(self, experiment: Experiment) -> None:
        """Holds the experiment from now on, and promises it a start if the ends of enough running gangs are known."""
        self.held.append(HeldGang(experiment, self.start_of(experiment)))

    def start_of(self, experiment: Experiment) -> PromisedStart | None:
        """The start of a gang if it is held; None where the ends of too few running gangs are known."""
        closed = self.in_rooms.close_for(experiment)
        start = self._start_of(experiment)
        self.in_rooms.reopen(closed)
        return start

    def _start_of(self, experiment: Experiment) -> PromisedStart | None:
        wanted = experiment.slots_per_trial
        count = self._supply.available() + self._supply.leaving
        reached = self._rules.reachable(experiment, wanted - count, self._shrinking.shrinkable)
        count += sum(reached.values())
        for time_us, slots, trial in heapq.merge(self._ends(reached), self._changes()):
            count += slots
            # Where others take slots, nothing comes that it waits for, even if enough are left over.
            if slots > 0 and count >= wanted:
                return PromisedStart(max(time_us, self._now_us), count - wanted, trial)
        return None

    def _ends(self, reached: Mapping[str, int]) -> Iterator[Change]:
        """Changes by the ends of running allocations, in order of time. `reached`: allocation -> slots that are counted
        already."""
        for end_us, item in self._pool.ends:
            if item not in self._decisions.taken:
                allocation = self._state.allocations[item]
                slots = slots_coming_back(self._state, self._pool, allocation) - reached.get(item, 0)
                slots -= self.in_rooms.waited_for(allocation, end_us)
                yield end_us, max(0, slots), allocation.trial_id

    def _changes(self) -> list[Change]:
        """Changes by the decisions of this pass: gangs that it starts will end, and held ones start when it is promised to
        them."""
        found = self.in_rooms.changes()
        for draft in self._decisions.drafts:
            if isinstance(draft, AllocationGranted) and draft.pool == self._pool.name:
                expected_us = self._state.experiments[draft.experiment_id].expected_us
                if expected_us is not None:
                    slots = sum(len(part.slot_ids) for part in draft.slots)
                    found.append((self._now_us + expected_us, slots, draft.trial_id))
        for item in self.held:
            if item.start is not None:
                found.append((item.start.start_us, -item.experiment.slots_per_trial, ""))
                found += end_of(item.experiment, item.start)
        return sorted(found)

    def binding(self, experiment: Experiment) -> list[HeldGang]:
        """The held gangs that could not have back the slots that the experiment starts on."""
        return [item for item in self.held if self._rules.bound_by(experiment, item.experiment)]

    def may_backfill(self, experiment: Experiment) -> bool:
        """True if a start is promised to all held gangs that it could delay."""
        return all(item.start is not None for item in self.binding(experiment))

    def note_held(self, experiment: Experiment, free: int) -> None:
        """Notes why a held gang waits."""
        if self._decisions.notes is None:
            return
        kept = self.in_rooms.kept()
        start = self.start_of(experiment)
        why = HeldBack(
            **gang(experiment),
            slots_free=free,
            slots_leaving=self._supply.leaving,
            slots_kept=sum(kept.values()),
            kept_for=tuple(sorted(key for key, count in kept.items() if count)),
            slots_offered=self._pool.capacity,
            expected_us=start.start_us if start else None,
            expected_trial=start.trial if start else "",
        )
        self._decisions.note(experiment, why)
