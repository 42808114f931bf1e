"""Elastic trials: they start with their least slots or more, grow into free slots, and give up what others need.

Rules, under every policy:
- What a trial has above its least is given up before anything that runs is preempted; whose, the policy says.
- Where that does not suffice, both are combined (`combined`).
- A trial grows only into slots that nobody waits for. Trials of the same rank are kept even: the smallest gets the next slot.
  Those on slots that a fallback pool lends grow last, and give up what they have above their least for any of that pool's own.
- A running trial grows at the earliest `keep_seconds` after it got its size, because every change costs a checkpoint and a start.
  So trials that come and go every second make an elastic one change at most twice in that time. What is needed by others is
  given up at once. One that is leaving to change its size can be changed again for nothing.
- The first trials of a search leave room for those that it will run beside them (`Experiment.width`).
- An experiment whose own trials wait lets its larger trials give up slots for them.

A change is one event, AllocationResized: the workers save and leave, and the trial is granted its new slots as soon as they
have. Slots that it gains are kept for it meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.sentences.leaving import Grows, Shrinks
from tenuto.schemas.sentences.waiting import Preempting, Waiting
from tenuto.services.scheduler.policies.backfilling import Backfilling
from tenuto.services.scheduler.policies.placement import Room, for_trial
from tenuto.services.scheduler.policies.reasons import ResizedNumbers, gang
from tenuto.services.scheduler.policies.resizing import Growing, droppable, merged, parts_of, resized, smaller
from tenuto.services.scheduler.policies.staying import gives_way
from tenuto.services.scheduler.policies.victims import Candidate, cheapest
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State
from tenuto.services.scheduler.state.slotsets import SlotSet, count

GUEST_RANK = 100
"""Behind all priorities: trials of other pools grow last."""


class Elastic(Backfilling):
    def __init__(self, state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> None:
        super().__init__(state, pool, now_us, notes)
        self._next: dict[str, SlotSet] = {}
        """Allocation -> slots that its trial goes on with, as decided in this pass."""
        self._draft_at: dict[str, int] = {}
        self.grown_slots: dict[int, int] = {}
        """Experiment -> slots by which its trials grow in this pass."""

    def plan(self) -> list[EventData]:
        """Grants, preemptions and changes of size that should happen now, in order. Empty when there is nothing to do."""
        if self.pool.queue:
            self.serve_queue()
        if self.pool.elastic or self.drafts:
            self.grow()
        return self.drafts

    # What a policy says.

    def serve_queue(self) -> None:
        """Serve those that wait, in the policy's order."""
        raise NotImplementedError

    def gives_up(self, experiment: Experiment, other: Experiment) -> bool:
        """Whether trials of the other experiment give up what they have above their least for this one."""
        raise NotImplementedError

    def compared(self, experiment: Experiment, other: Experiment) -> dict[str, Any]:
        """Why the other experiment gives up slots for this one: what the policy compared, as fields of `Shrinks`."""
        return {"priority": other.priority, "wanted_by_priority": experiment.priority}

    def spare(self, experiment: Experiment) -> Iterator[tuple[Allocation, int]]:
        """Elastic trials, and how many slots each may give up for this experiment."""
        for item in self.pool.elastic:
            allocation = self.state.allocations[item]
            other = self.state.experiments[allocation.experiment_id]
            if self.is_guest(other) or self.gives_up(experiment, other):
                yield allocation, self.surplus(allocation)

    def growth_left(self, experiment: Experiment) -> int:
        """Slots that the experiment may have in addition, as far as the policy minds."""
        return self.pool.capacity

    def growth_rank(self, experiment: Experiment) -> int:
        """Whose trials grow first: 0 before 1."""
        return 0

    # On slots that a fallback pool lends.

    def is_guest(self, experiment: Experiment) -> bool:
        """Its trials' slots here are lent to them: what they have above their least they give to any of the pool's own."""
        return experiment.pool != self.pool.name

    def size_lent(self, experiment: Experiment, used: int, lender: Pool, free: int) -> int:
        """Where the lender has no trials that could grow: an even part of its free slots for each of those that wait."""
        if not experiment.elastic or lender.elastic:
            return experiment.slots_per_trial
        most = min(experiment.slots_most, free // max(1, len(experiment.waiting)))
        if experiment.max_slots is not None:
            most = min(most, experiment.max_slots - used)
        for left in [self.quota_left(owner) for owner in experiment.owners] if self.state.shares else ():
            most = most if left is None else min(most, left)
        return max(experiment.slots_per_trial, most)

    # Giving up slots.

    def slots_soon(self, allocation: Allocation) -> SlotSet:
        """With which its trial goes on, as far as it is decided."""
        return self._next.get(allocation.allocation_id) or allocation.next or allocation.slots

    def surplus(self, allocation: Allocation) -> int:
        """Slots above its least that it could give up; none if it is about to grow, or was just told to leave."""
        experiment = self.state.experiments[allocation.experiment_id]
        told = allocation.allocation_id in self.taken and allocation.allocation_id not in self._next
        if not gives_way(experiment, allocation) or told or allocation.gained:
            return 0
        if allocation.allocation_id in self._next and count(self._next[allocation.allocation_id]) > allocation.size:
            return 0
        return count(self.slots_soon(allocation)) - experiment.slots_per_trial

    def shrinkable(self, experiment: Experiment, room: Room | None = None) -> list[Candidate]:
        """Elastic trials with the slots that each can give up for this experiment, of these agents only if a room is given."""
        found: list[Candidate] = []
        for allocation, most in self.spare(experiment) if self.pool.elastic else ():
            freed = (
                min(most, len(droppable(self.state, self.pool, self.slots_soon(allocation), room, self.held_agents)))
                if most > 0
                else 0
            )
            if freed > 0:
                found.append(Candidate(allocation, freed, 0))
        return found

    def shrinkable_on(self, experiment: Experiment) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for allocation, most in self.spare(experiment) if self.pool.elastic else ():
            on: dict[str, int] = {}
            for agent_id, _ in droppable(self.state, self.pool, self.slots_soon(allocation)) if most > 0 else ():
                on[agent_id] = on.get(agent_id, 0) + 1
            found += [(agent_id, min(count, most)) for agent_id, count in on.items()]
        return found

    def shrink_for(self, experiment: Experiment, missing: int, room: Room | None = None) -> int:
        if not self.pool.elastic or missing <= 0:
            return 0
        chosen = cheapest(self.shrinkable(experiment, room), missing, self.now_us)
        over = sum(item.freed for item in chosen) - missing
        for candidate in sorted(chosen, key=lambda item: -item.freed):
            # No set is larger than it must be, so one of them alone frees more than is over.
            less, over = (over, 0) if candidate.freed > over else (0, over)
            self.shrink(candidate.allocation, candidate.freed - less, experiment, missing, room)
        if chosen:
            self.note(experiment, Preempting(**gang(experiment), victims=len(chosen), shrink=True))
        return missing if chosen else 0

    def shrink_inside(self, experiment: Experiment) -> None:
        if not experiment.elastic or not experiment.waiting or not self.pool.elastic:
            return
        own = [self.state.allocations[item] for item in experiment.allocations if item in self.pool.elastic]
        freeing = experiment.slots_used - sum(count(self.slots_soon(allocation)) for allocation in own)
        wanted = experiment.slots_per_trial * len(experiment.waiting) - freeing
        if sum(self.surplus(allocation) for allocation in own) + freeing < experiment.slots_per_trial:
            return
        give: dict[str, int] = {}
        for _ in range(wanted):
            left = [(self.surplus(item) - give.get(item.allocation_id, 0), item.allocation_id) for item in own]
            most, item = max(left, default=(0, ""))
            if most <= 0:
                break
            give[item] = give.get(item, 0) + 1
        for item in sorted(give):
            self.shrink(self.state.allocations[item], give[item], experiment, wanted)

    def shrink(self, allocation: Allocation, slots: int, wanted_by: Experiment, missing: int, room: Room | None = None) -> None:
        """It goes on with so many slots less."""
        now = self.slots_soon(allocation)
        left = smaller(now, droppable(self.state, self.pool, now, room, self.held_agents)[:slots])
        if left == now:
            return
        why = Shrinks(
            **self._sizes(allocation, left),
            wanted_by_experiment=wanted_by.experiment_id,
            slots_missing=missing,
            **self.compared(wanted_by, self.state.experiments[allocation.experiment_id]),
        )
        self._resize(allocation, left, why.reason(f"{self.policy}.shrinks"))

    def _sizes(self, allocation: Allocation, slots: SlotSet) -> ResizedNumbers:
        """Of an allocation that goes on with these slots."""
        experiment, soon = self.state.experiments[allocation.experiment_id], count(self.slots_soon(allocation))
        return {
            "slots_from": allocation.size,
            "slots_soon": None if soon == allocation.size else soon,
            "slots_to": count(slots),
            "slots_min": experiment.slots_per_trial,
            "slots_max": experiment.slots_most,
        }

    def _resize(self, allocation: Allocation, slots: SlotSet, reason: Reason) -> None:
        draft = resized(allocation, slots, reason)
        at = self._draft_at.setdefault(allocation.allocation_id, len(self.drafts))
        self.drafts[at:] = [draft, *self.drafts[at + 1 :]]
        self._next[allocation.allocation_id] = slots
        self.taken.add(allocation.allocation_id)

    # Growing.

    def grow(self) -> None:
        """Free slots that nobody waits for go to trials that may be larger."""
        if self.blocked or self.claimed or self.available() == 0:
            return
        growing = self.growing()
        for entry in self._filled(growing, self.available()):
            self._grow(entry)

    def growing(self) -> list[Growing]:
        found: list[Growing] = []
        granted: dict[int, int] = {}
        """Experiment -> trials granted slots in this pass: they wait no more."""
        for at, draft in enumerate(self.drafts):
            if isinstance(draft, AllocationGranted):
                granted[draft.experiment_id] = granted.get(draft.experiment_id, 0) + 1
            if isinstance(draft, AllocationGranted) and draft.pool == self.pool.name and draft.backfill_until_us is None:
                experiment = self.state.experiments[draft.experiment_id]
                if experiment.elastic:
                    slots = tuple((part.agent_id, part.slot_ids) for part in draft.slots)
                    most = min(experiment.slots_most, self._even_part(experiment))
                    found.append(Growing(experiment, int(draft.trial_id.partition("-")[2]), slots, most, at))
        for item in self.pool.elastic:
            allocation = self.state.allocations[item]
            experiment = self.state.experiments[allocation.experiment_id]
            settled = allocation.leaving == "resized" or self.now_us - allocation.granted_us >= experiment.keep_us
            wanted = not experiment.paused and experiment.trials[allocation.trial_number].phase == "wanted"
            waits = len(experiment.waiting) > granted.get(experiment.experiment_id, 0)
            if item in self.taken or not settled or not wanted or waits:
                continue
            entry = Growing(experiment, allocation.trial_number, self.slots_soon(allocation), experiment.slots_most)
            entry.allocation = allocation
            found.append(entry)
        return found

    def _even_part(self, experiment: Experiment) -> int:
        """Of what the experiment holds and what is free, for one of the trials that it is expected to run at once."""
        at_once = max(experiment.width, len(experiment.allocations) + len(experiment.waiting))
        return (experiment.slots_used + self.granted_slots.get(experiment.experiment_id, 0) + self.available()) // at_once

    def _room_left(self, experiment: Experiment, added: dict[int, int]) -> bool:
        """Whether its limits and its owners' quotas leave another slot."""
        more = self.granted_slots.get(experiment.experiment_id, 0) + added.get(experiment.experiment_id, 0)
        if experiment.max_slots is not None and experiment.slots_used + more >= experiment.max_slots:
            return False
        left_here = self.pool.capacity if self.is_guest(experiment) else self.growth_left(experiment)
        if added.get(experiment.experiment_id, 0) >= left_here:
            return False
        total = sum(added.values())  # An upper bound of what its owners were given here.
        quotas = [self.quota_left(owner) for owner in experiment.owners] if self.state.shares else []
        return all(left is None or left > total for left in quotas)

    def _filled(self, growing: list[Growing], free: int) -> list[Growing]:
        """Gives the free slots to them, one at a time. Those that got any."""
        heap = [
            (
                GUEST_RANK if self.is_guest(entry.experiment) else self.growth_rank(entry.experiment),
                entry.size,
                entry.experiment.place,
                entry.experiment.experiment_id,
                entry.number,
                at,
            )
            for at, entry in enumerate(growing)
        ]
        heapq.heapify(heap)
        added: dict[int, int] = {}
        while heap and free > 0:
            rank, _, place, key, number, at = heapq.heappop(heap)
            entry = growing[at]
            if entry.size >= entry.most or not self._room_left(entry.experiment, added):
                continue
            entry.size += 1
            free -= 1
            added[key] = added.get(key, 0) + 1
            heapq.heappush(heap, (rank, entry.size, place, key, number, at))
        return [entry for entry in growing if entry.size > entry.before]

    def _grow(self, entry: Growing) -> None:
        experiment, free = entry.experiment, self.available()
        agents = [agent_id for agent_id, _ in entry.slots]
        asked = for_trial(experiment, entry.number).constraints
        more = self.ground.more(asked, agents, entry.size - entry.before)
        slots = merged(entry.slots, more)
        size = count(slots)
        if size == entry.before:
            return
        for grown in (self.granted_slots, self.grown_slots):
            grown[experiment.experiment_id] = grown.get(experiment.experiment_id, 0) + size - entry.before
        for owner in experiment.owners:
            self.granted_to[owner] = self.granted_to.get(owner, 0) + size - entry.before
        if entry.allocation is not None:
            kept = round((self.now_us - entry.allocation.granted_us) / 1e6, 3)
            why = Grows(**self._sizes(entry.allocation, slots), slots_free=free, kept_seconds=kept)
            self._resize(entry.allocation, slots, why.reason(f"{self.policy}.grows"))
            return
        draft = self.drafts[entry.fresh_at]
        assert isinstance(draft, AllocationGranted)
        reason = draft.reason.model_copy(update={"numbers": {**draft.reason.numbers, "slots_max": experiment.slots_most}})
        self.drafts[entry.fresh_at] = draft.model_copy(update={"slots": parts_of(slots), "reason": reason})
