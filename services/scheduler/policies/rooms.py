"""Gangs with constraints: each waits for the room that is nearest to having its slots, and holds back nothing outside of it."""

from __future__ import annotations

from tenuto.services.scheduler.policies import words
from tenuto.services.scheduler.policies.placement import Room
from tenuto.services.scheduler.policies.planner import Outcome, Planner, Waiting
from tenuto.services.scheduler.policies.victims import Candidate, cost_of
from tenuto.services.scheduler.state import Experiment, Pool, State, usable_slots

ROOMS_MAX = 32
"""Rooms whose victims are compared; they are the ones where the fewest slots are missing."""


class Rooms(Planner):
    def __init__(self, state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> None:
        super().__init__(state, pool, now_us, notes)
        self._coming: dict[str, int] | None = None
        self._aside: list[str] = []

    def serve_in_rooms(self, experiment: Experiment, number: int) -> Outcome:
        assert experiment.constraints is not None
        wanted = experiment.slots_per_trial
        rooms = self.ground.rooms(experiment.constraints, wanted)
        if not rooms:
            self.blocked = self.claimed
            self.note(experiment, words.no_room(experiment, self.pool))
            return "never"
        if self.claimed:
            self.note(experiment, words.behind(experiment))
            return "held"
        sizes = [(self.ground.free_in(room), self._coming_in(room), room) for room in rooms]
        free, coming, room = max(sizes, key=lambda item: (item[0] + item[1], item[2]))
        if free + coming >= wanted:
            self._keep(room)
            self.note(experiment, words.soon(experiment, free))
            return "soon"
        for room_free, room_coming, candidate_room in sorted(sizes, key=lambda item: (-item[0] - item[1], item[2]))[:ROOMS_MAX]:
            if self.shrink_for(experiment, wanted - room_free - room_coming, candidate_room):
                self._keep(candidate_room)
                return "soon"
        best: tuple[tuple[int, ...], Room, list[Candidate], int] | None = None
        for room_free, room_coming, candidate_room in sorted(sizes, key=lambda item: (-item[0] - item[1], item[2]))[:ROOMS_MAX]:
            missing = wanted - room_free - room_coming
            chosen = self.victims_for(experiment, missing, self._candidates_in(experiment, candidate_room), candidate_room)
            costs = [cost_of(victim, self.now_us) for victim in chosen]
            total = tuple(sum(column) for column in zip(*costs, strict=True))
            if chosen and (best is None or total < best[0]):
                best = (total, candidate_room, chosen, missing)
        if best is None:
            self.note(experiment, words.no_room_yet(experiment, sizes, self._first_end(room)))
            self._aside += self.free.hide(room)
            return "aside"
        _, room, chosen, missing = best
        self.preempt(experiment, number, chosen, self.ground.free_in(room), self._coming_in(room), missing)
        self.shrink_for(experiment, missing - sum(victim.freed for victim in chosen), room)
        self._keep(room)
        return "soon"

    def _keep(self, room: Room) -> None:
        """Nothing behind may use what is free, or being freed, there."""
        self.leaving = max(0, self.leaving - self._coming_in(room))
        self.free.hide(room)

    def show_aside(self) -> None:
        """Those that may be preempted may use the rooms that were held aside."""
        self.free.show(self._aside)
        self._aside = []

    def _coming_in(self, room: Room) -> int:
        if self._coming is None:
            self._coming = {}
            for item in self.pool.leaving:
                for agent_id, slot_ids in self.state.allocations[item].given_up:
                    usable = usable_slots(self.pool, self.state.agents[agent_id])
                    count = sum(slot in usable for slot in slot_ids)
                    self._coming[agent_id] = self._coming.get(agent_id, 0) + count
        return sum(self._coming.get(agent_id, 0) for agent_id in room) if self._coming else 0

    def _candidates_in(self, experiment: Experiment, room: Room) -> list[Candidate]:
        found: dict[str, Candidate] = {}
        for agent_id in room:
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

    def _first_end(self, room: Room) -> int | None:
        if self.notes is None:
            return None
        return next(
            (end for end, item in self.pool.ends if any(part[0] in room for part in self.state.allocations[item].slots)), None
        )
