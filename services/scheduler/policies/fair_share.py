"""Fair share: each experiment may hold its max-min fair share (see `shares`), and more while nobody else wants it.

Who is furthest below its share is served first, and may preempt those above theirs, but never below it: so nothing is preempted
to and fro. Gangs that are within their share and held keep what is behind them from the free slots, except for backfill.
After them, free slots go to whoever can use them; such gangs are above their share and give way as soon as it is wanted.
A gang that is larger than its share gets its slots in turn with the others (see `turns`).

With a half-life, past use lowers the weight of workspaces and users (see `usage`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.schemas.sentences.waiting import Share, Waiting
from tenuto.services.scheduler.policies.combined import Combined
from tenuto.services.scheduler.policies.placement import Room, for_trial
from tenuto.services.scheduler.policies.reach import first_coming
from tenuto.services.scheduler.policies.reasons import OrderNumbers, gang
from tenuto.services.scheduler.policies.resizing import Growing, droppable
from tenuto.services.scheduler.policies.spared import Spared
from tenuto.services.scheduler.policies.targets import divided
from tenuto.services.scheduler.policies.turns import due_us, quota_binds, turn_us, with_turns
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State
from tenuto.services.scheduler.state.slotsets import count


def plan(state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> list[EventData]:
    return _Pass(state, pool, now_us, notes).plan() if pool.queue or pool.elastic else []


class _Pass(Combined):
    policy = "fair_share"
    _spared: Spared | None = None

    def plan(self) -> list[EventData]:
        if self.notes is None and not self._anything_to_do():
            return self.drafts
        known = divided(self.state, self.pool, self.now_us)
        self.divided = known
        self.shares = with_turns(self.state, self.pool, known, self.now_us, self._may_start)
        self.targets = self.shares.targets
        self.promised: dict[int, int] = {}
        """Experiment -> slots promised in this pass, beside those that it holds."""
        if self.pool.queue:
            self._serve_below_share()
        if self.pool.elastic or self.drafts:
            self.grow()
        if self.pool.queue:
            self._lend_the_rest()
        return self.drafts

    def _anything_to_do(self) -> bool:
        """Whether there are slots that could change hands: free ones, or running gangs that may give way."""
        return bool(self.free.count or self.pool.victims or self.pool.elastic or self.may_borrow())

    def _may_start(self, experiment: Experiment) -> bool:
        """Whether its limits and constraints let a gang of it start, once there are slots."""
        if experiment.max_slots is not None and experiment.slots_per_trial > experiment.max_slots:
            return False
        if quota_binds(self.state, self.divided, experiment):
            return False
        return first_coming(self.state, self.pool, experiment) is not None

    def turn_until(self, experiment: Experiment) -> int | None:
        begins = experiment.experiment_id in self.shares.turns and experiment.turn_until_us <= self.now_us
        return self.now_us + turn_us(experiment, self.divided) if begins else None

    def _queue(self) -> Iterator[Experiment]:
        return (self.state.experiments[entry[2]] for entry in self.pool.queue)

    def _counted(self, key: int) -> int:
        """Slots that the experiment holds or was promised in this pass."""
        return self.pool.held.get(key, 0) + self.promised.get(key, 0)

    def _serve_below_share(self) -> None:
        heap: list[tuple[float, float, int, int]] = []
        self._push_all(heap)
        held = False
        while heap:
            _, _, experiment_id, at = heapq.heappop(heap)
            experiment = self.state.experiments[experiment_id]
            if held:
                self.backfill(experiment)
                if self.notes is None and self.reserved is None:
                    return
                continue
            used = experiment.slots_used + self.promised.get(experiment_id, 0)
            outcome = self.serve(experiment, experiment.waiting[at], used)
            if outcome == "held":
                held = True
                self.reserve(experiment)
                continue
            if outcome in ("never", "aside") and experiment.trials[experiment.waiting[at]].excluded:
                self._push(heap, experiment, at + 1)  # Another of its trials may go where this one failed.
            if outcome in ("granted", "soon"):
                # What another pool lends is none of its share here.
                lent = outcome == "granted" and self.drafts[-1].stream_key() != self.pool.name
                promised = experiment.slots_per_trial if lent else self.size
                self.promised[experiment_id] = self.promised.get(experiment_id, 0) + promised
                self._push(heap, experiment, at + 1)

    def _push_all(self, heap: list[tuple[float, float, int, int]]) -> None:
        # One above its share may let its own larger trials shrink.
        for key in sorted(self.targets if self.pool.elastic else self.shares.below):
            experiment = self.state.experiments[key]
            if experiment.queued and experiment.pool == self.pool.name:
                self._push(heap, experiment, 0)

    def _push(self, heap: list[tuple[float, float, int, int]], experiment: Experiment, at: int) -> None:
        """If its next trial is within its share. Who has the smallest part of its share is first."""
        key = experiment.experiment_id
        promised, target = self._counted(key), self.targets.get(key, 0)
        if at >= len(experiment.waiting):
            return
        if promised + experiment.slots_per_trial <= target:
            heapq.heappush(heap, (promised / target, experiment.place, key, at))
        elif experiment.elastic:
            self.shrink_inside(experiment)

    # Elastic trials.

    def size_of(self, experiment: Experiment, used: int) -> int:
        """Its part of the experiment's share: even among the trials that run, wait, or are expected."""
        if not experiment.elastic:
            return experiment.slots_per_trial
        key = experiment.experiment_id
        at_once = max(experiment.width, len(experiment.allocations) + len(experiment.waiting))
        left = self.targets.get(key, 0) - self._counted(key)
        most = left if experiment.max_slots is None else min(left, experiment.max_slots - used)
        for quota in [self.quota_left(owner) for owner in experiment.owners] if self.state.shares else ():
            most = most if quota is None else min(most, quota)
        even = min(experiment.slots_most, self.targets.get(key, 0) // at_once, most)
        return max(experiment.slots_per_trial, even)

    def spare(self, experiment: Experiment) -> Iterator[tuple[Allocation, int]]:
        """Of those above their share, as many as they are above it, their largest trials first."""
        above: dict[int, int] = {}
        found = [self.state.allocations[item] for item in self.pool.elastic]
        for allocation in sorted(found, key=lambda item: (-count(self.slots_soon(item)), item.allocation_id)):
            key = allocation.experiment_id
            left = above.get(key, self._above(key))
            given = max(0, min(left, self.surplus(allocation)))
            above[key] = left - given
            yield allocation, given

    def _above(self, key: int) -> int:
        """Slots above its share that the experiment still holds, with what was decided in this pass."""
        gone = 0
        for item in sorted(self.taken):
            allocation = self.state.allocations[item]
            if allocation.experiment_id == key:
                gone += allocation.size_soon - (count(self._next[item]) if item in self._next else 0)
        return self.pool.held.get(key, 0) - gone - self.targets.get(key, 0)

    def growth_left(self, experiment: Experiment) -> int:
        key = experiment.experiment_id
        return self.targets.get(key, 0) - self._counted(key) - self.grown_slots.get(key, 0)

    def grow(self) -> None:
        """To their shares, also at the cost of those above theirs."""
        if self.blocked or self.claimed:
            return
        super().grow()
        wanted: dict[int, int] = {}
        inside: list[tuple[Growing, int]] = []
        """Those that may not grow everywhere, and by how many slots they would."""
        for entry in self.growing() if self.pool.elastic else ():
            if self.is_guest(entry.experiment):
                continue
            key = entry.experiment.experiment_id
            more = min(max(0, self.growth_left(entry.experiment)) - wanted.get(key, 0), entry.most - entry.before)
            wanted[key] = wanted.get(key, 0) + max(0, more)
            if for_trial(entry.experiment, entry.number).constraints is not None:
                inside.append((entry, more))
        for entry, more in inside:
            wanted[entry.experiment.experiment_id] -= max(0, more)
            self._make_way_around(entry, more)
        missing = sum(wanted.values()) - self.available() - self.leaving
        for key in sorted(wanted):
            if wanted[key] and missing > 0:
                missing -= self._make_way(self.state.experiments[key], min(missing, wanted[key]))

    def _make_way_around(self, entry: Growing, more: int) -> None:
        """For one that may only grow where it is: what is given up elsewhere it could not use."""
        asked = for_trial(entry.experiment, entry.number).constraints
        room = self.ground.around(asked, [agent_id for agent_id, _ in entry.slots])
        if room is not None and more > 0:
            self._make_way(entry.experiment, more - self.ground.free_in(room) - self.coming_in(room), room)

    def _make_way(self, experiment: Experiment, missing: int, room: Room | None = None) -> int:
        """Those above their shares give up slots, at most so many, for trials that run and are entitled to more."""
        freed = 0
        for allocation, most in list(self.spare(experiment)):
            slots = min(most, missing - freed, len(droppable(self.state, self.pool, self.slots_soon(allocation), room)))
            if slots > 0:
                self.shrink(allocation, slots, experiment, missing, room)
                freed += slots
        chosen: list[Candidate] = []
        if freed < missing:
            left = missing - freed
            found = self.candidates(experiment, left) if room is None else self.candidates_in(experiment, room)
            for candidate in found:
                if candidate.freed <= missing - freed and candidate.allocation.experiment_id != experiment.experiment_id:
                    chosen.append(candidate)
                    freed += candidate.freed
        if chosen:
            number = min(self.state.allocations[item].trial_number for item in experiment.allocations)
            self.preempt(experiment, number, chosen, self.available(), self.leaving, missing)
        return freed

    def _lend_the_rest(self) -> None:
        """Free slots that nobody within a share waits for, to those who will give them back."""
        self.show_aside()
        served = {draft.trial_id for draft in self.drafts if draft.TYPE == "AllocationGranted"}  # type: ignore[attr-defined]
        for experiment in self._queue():
            if self.available() == 0 and self.notes is None and not experiment.fallback_pools:
                if self.claimed or not self.may_borrow():
                    return
                continue
            key = experiment.experiment_id
            used = experiment.slots_used + self.promised.get(key, 0)
            for number in experiment.waiting:
                if f"{key}-{number}" in served:
                    continue
                fits = experiment.preemptible and experiment.slots_per_trial <= self.available()
                outcome = self.serve_spare(experiment, number, used) if fits or experiment.fallback_pools else False
                if not outcome:
                    self._note_share(experiment, used)
                    break
                used += self.size

    def _note_share(self, experiment: Experiment, used: int) -> None:
        """Why one waits that nobody's slots are kept or freed for."""
        if self.notes is None or self.over_limit(experiment, used):
            return
        key = experiment.experiment_id
        has_turns = not experiment.allocations and self._may_start(experiment)
        due = due_us(experiment, self.divided) if has_turns else None
        used_slots, target = self._counted(key), self.targets.get(key, 0)
        self.note(experiment, Share(**gang(experiment), slots_used=used_slots, slots_share=target, expected_us=due))

    def serve_spare(self, experiment: Experiment, number: int, used: int) -> bool:
        if self.over_limit(experiment, used):
            return False
        before, experiment = self.free.count, for_trial(experiment, number)
        if experiment.preemptible and not self.claimed:
            slots = self.ground.take(experiment.constraints, experiment.slots_per_trial)
            if slots is not None:
                self.grant(experiment, number, used, slots, before)
                return True
        return self.borrow(experiment, number, used)

    def order(self, experiment: Experiment) -> OrderNumbers:
        target = self.targets.get(experiment.experiment_id, 0)
        in_turn = experiment.experiment_id in self.shares.turns
        return {"slots_share": target} if in_turn else {"slots_share": target, "weight": experiment.weight}

    def why_preempted(self, experiment: Experiment, number: int, victim: Candidate) -> dict[str, Any]:
        other = self.state.experiments[victim.allocation.experiment_id]
        return {
            **self._shares_of(experiment, other),
            "wanted_by_runs": bool(experiment.trials[number].allocation_id),
            "guest_of": other.pool if self.is_guest(other) else "",
        }

    def compared(self, experiment: Experiment, other: Experiment) -> dict[str, Any]:
        return {**self._shares_of(experiment, other), "guest": self.is_guest(other)}

    def _shares_of(self, experiment: Experiment, other: Experiment) -> dict[str, int]:
        """Slots that the two hold, and their shares."""
        keys = (experiment.experiment_id, other.experiment_id)
        return {
            "slots_held": self.pool.held.get(keys[1], 0),
            "slots_share": self.targets.get(keys[1], 0),
            "wanted_by_slots_held": self._counted(keys[0]),
            "wanted_by_slots_share": self.targets.get(keys[0], 0),
        }

    def rank(self, experiment: Experiment, allocation: Allocation) -> int | None:
        return 0 if self.spared.alone(allocation) else None

    def candidates_in(self, experiment: Experiment, room: Room) -> list[Candidate]:
        return self.spared.together(super().candidates_in(experiment, room))

    def candidates(self, experiment: Experiment, missing: int) -> Sequence[Candidate]:
        """Of those above their share, the one furthest above gives first, and of its gangs the latest saved or granted."""
        return self.spared.candidates(missing)

    @property
    def spared(self) -> Spared:
        """Made when it is first needed: most passes preempt nobody."""
        if self._spared is None:
            self._spared = Spared(self.state, self.pool, self.shares.above, self.targets, self.taken, self.comes_back)
        return self._spared

    def gains(self, candidates: Sequence[Candidate], given: Mapping[str, int]) -> list[int]:
        """Shrunk and preempted together, an experiment comes down to its share and not below."""
        gave: dict[int, int] = {}
        for item in sorted(given):
            key = self.state.allocations[item].experiment_id
            gave[key] = gave.get(key, 0) + given[item]
        left = {key: self._above(key) - gave[key] for key in sorted(gave)}
        found = []
        for candidate in candidates:
            key, gain = candidate.allocation.experiment_id, candidate.freed - given.get(candidate.allocation.allocation_id, 0)
            if key in left:
                gain = max(0, min(gain, left[key]))
                left[key] -= gain
            found.append(gain)
        return found
