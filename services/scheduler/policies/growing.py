"""Elastic trials grow into free slots that no other trial waits for.

- Trials of the same rank are kept even: the smallest gets the next slot. Those on slots that a fallback pool lends grow last.
- A running trial grows at the earliest `keep_seconds` after it got its size, because every change costs a checkpoint and a start.
  So trials that come and go every second make an elastic one change at most twice in that time.
- The first trials of a search leave room for those that it will run beside them (`Experiment.width`).

Slots that a trial gains are kept for it until its workers have left.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.sentences.released_slots import Grows
from tenuto.services.scheduler.policies.placement import for_trial
from tenuto.services.scheduler.policies.quotas import Quotas
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.shrinking import Shrinking
from tenuto.services.scheduler.state import Allocation, Experiment
from tenuto.services.scheduler.state.slotsets import SlotSet, count, merged

GUEST_RANK = 100
"""Rank behind all priorities: trials of other pools grow last."""


@dataclass
class Growing:
    """A trial that may grow: a running one, or one that is granted slots in this very pass."""

    experiment: Experiment
    number: int
    slots: SlotSet
    most: int
    draft_at: int = -1
    """Place of its grant among the drafts if it is granted slots in this pass; -1 for a running one."""
    allocation: Allocation | None = None
    """Allocation of a running trial; None if it is granted slots in this pass."""
    size: int = field(init=False)
    """Slots that it will have."""

    def __post_init__(self) -> None:
        self.before = self.size = count(self.slots)


class Growth:
    def __init__(self, rules: PolicyRules, quotas: Quotas, shrinking: Shrinking) -> None:
        self._rules, self._quotas, self._shrinking = rules, quotas, shrinking
        self._decisions, self._supply = rules.decisions, rules.supply
        self._state, self._pool, self._now_us = rules.state, rules.pool, rules.now_us

    def grow(self) -> None:
        """Give the free slots to those that may be larger."""
        if self._supply.available() == 0:
            return
        for entry in self._filled(self.growing(), self._supply.available()):
            self._grow(entry)

    def growing(self) -> list[Growing]:
        """Trials that may grow: those granted slots in this pass, and running ones that have kept their size long enough."""
        found: list[Growing] = []
        granted: dict[int, int] = {}
        """Experiment -> trials granted slots in this pass: they wait no more."""
        for at, draft in enumerate(self._decisions.drafts):
            if not isinstance(draft, AllocationGranted):
                continue
            granted[draft.experiment_id] = granted.get(draft.experiment_id, 0) + 1
            experiment = self._state.experiments[draft.experiment_id]
            # A backfilling trial was reckoned with at its size: if it grew, it could delay a held gang.
            if experiment.elastic and draft.pool == self._pool.name and draft.backfill_until_us is None:
                slots = tuple((part.agent_id, part.slot_ids) for part in draft.slots)
                most = min(experiment.slots_most, self._even_part(experiment))
                found.append(Growing(experiment, int(draft.trial_id.partition("-")[2]), slots, most, at))
        for item in self._pool.elastic:
            allocation = self._state.allocations[item]
            experiment = self._state.experiments[allocation.experiment_id]
            # A trial that is leaving to change its size saves anyway, so another size costs nothing more.
            settled = allocation.leaving == "resized" or self._now_us - allocation.granted_us >= experiment.keep_us
            wanted = not experiment.paused and experiment.trials[allocation.trial_number].phase == "wanted"
            # The start of an experiment's own waiting trials comes before the growth of its running ones.
            waits = len(experiment.waiting) > granted.get(experiment.experiment_id, 0)
            if item in self._decisions.taken or not settled or not wanted or waits:
                continue
            slots = self._decisions.slots_soon(allocation)
            found.append(Growing(experiment, allocation.trial_number, slots, experiment.slots_most, allocation=allocation))
        return found

    def _even_part(self, experiment: Experiment) -> int:
        """Even part of the slots that the experiment holds and the free ones, for one of the trials that it is expected to run at
        once."""
        at_once = max(experiment.width, len(experiment.allocations) + len(experiment.waiting))
        granted = self._decisions.granted.get(experiment.experiment_id, 0)
        return (experiment.slots_used + granted + self._supply.available()) // at_once

    def _may_have_another(self, experiment: Experiment, added: dict[int, int]) -> bool:
        """True if its limits and its owners' quotas leave another slot. `added`: slots given to experiments, not decided yet."""
        here = added.get(experiment.experiment_id, 0)
        more = self._decisions.granted.get(experiment.experiment_id, 0) + here
        if experiment.max_slots is not None and experiment.slots_used + more >= experiment.max_slots:
            return False
        if here >= (self._pool.capacity if self._rules.is_guest(experiment) else self._rules.growth_left(experiment)):
            return False
        total = sum(added.values())  # An upper bound of what its owners were given here.
        quotas = [self._quotas.left(owner) for owner in experiment.owners] if self._state.shares else []
        return all(left is None or left > total for left in quotas)

    def _filled(self, growing: list[Growing], free: int) -> list[Growing]:
        """Gives the free slots to them, one at a time; returns those that got any."""
        heap = [
            (
                GUEST_RANK if self._rules.is_guest(entry.experiment) else self._rules.growth_rank(entry.experiment),
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
            # It is not pushed back: limits only get closer while slots are given out.
            if entry.size >= entry.most or not self._may_have_another(entry.experiment, added):
                continue
            entry.size += 1
            free -= 1
            added[key] = added.get(key, 0) + 1
            heapq.heappush(heap, (rank, entry.size, place, key, number, at))
        return [entry for entry in growing if entry.size > entry.before]

    def _grow(self, entry: Growing) -> None:
        free = self._supply.available()
        asked = for_trial(entry.experiment, entry.number).constraints
        more = self._supply.ground.more(asked, [agent_id for agent_id, _ in entry.slots], entry.size - entry.before)
        slots = merged(entry.slots, tuple((part.agent_id, part.slot_ids) for part in more))
        size = count(slots)
        # There may be free slots, but none where its constraints let it grow.
        if size == entry.before:
            return
        self._decisions.grow(entry.experiment, size - entry.before)
        if entry.allocation is None:
            self._decisions.enlarge_grant(entry.draft_at, slots)
            return
        kept = round((self._now_us - entry.allocation.granted_us) / 1e6, 3)
        why = Grows(**self._shrinking.sizes(entry.allocation, slots), slots_free=free, kept_seconds=kept)
        self._decisions.resize(entry.allocation, slots, why.reason(f"{self._decisions.policy}.grows"))
