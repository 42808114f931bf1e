"""Decisions of one pass over one pool so far: its events, and their effects on further decisions.

Every part of a pass reads it; only here drafts are added. The state itself stays as it was when the pass began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, AllocationPreempted, AllocationResized
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.ids import allocation_id, trial_id
from tenuto.schemas.sentences.released_slots import Preempts
from tenuto.schemas.sentences.waiting import Preempting, Waiting
from tenuto.services.scheduler.policies.owner_fairness import OwnerFairness
from tenuto.services.scheduler.policies.placement import for_trial
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State
from tenuto.services.scheduler.state.giving_way import gives_way
from tenuto.services.scheduler.state.slotsets import SlotSet, count


class TrialDemand(NamedTuple):
    """One trial that waits for slots."""

    experiment: Experiment
    """The experiment with the constraints of this trial: it may not go where it failed before."""
    number: int
    """Number of the trial."""
    used: int
    """Slots that the experiment holds or was promised."""
    wanted: int
    """Least slots that it can start with."""

    @property
    def trial_id(self) -> str:
        return trial_id(self.experiment.experiment_id, self.number)


def demand_of(experiment: Experiment, number: int, used: int) -> TrialDemand:
    return TrialDemand(for_trial(experiment, number), number, used, experiment.slots_per_trial)


class Decisions:
    def __init__(self, state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None, policy: str) -> None:
        """`notes`: receives the reason why each experiment waits, for later questions; it changes no decision. `policy`: its
        name."""
        self.state, self.pool, self.now_us, self.notes, self.policy = state, pool, now_us, notes, policy
        self.drafts: list[EventData] = []
        self.taken: set[str] = set()
        """Allocations that were told in this pass to leave, for good or to go on with other slots."""
        self.granted: dict[int, int] = {}
        """Experiment -> slots granted in this pass, and those by which its trials grow."""
        self.granted_to: dict[str, int] = {}
        """Owner -> slots granted in this pass, counted likewise."""
        self.grown: dict[int, int] = {}
        """Experiment -> slots by which its trials grow."""
        self.fairness: OwnerFairness | None = None
        """Receives the slots that owners gain and lose, under policies that depend on them."""
        self._next: dict[str, SlotSet] = {}
        """Allocation -> slots that its trial goes on with, as decided in this pass."""
        self._draft_at: dict[str, int] = {}
        """Allocation -> place of its change of size among the drafts; it has at most one."""

    def note(self, experiment: Experiment, waiting: Waiting) -> None:
        """Records why the experiment waits; the first reason found is kept."""
        if self.notes is not None and experiment.experiment_id not in self.notes:
            self.notes[experiment.experiment_id] = waiting

    # Sizes of running trials, as far as they are decided.

    def slots_soon(self, allocation: Allocation) -> SlotSet:
        """Slots with which its trial goes on."""
        # A decision of this pass replaces that of an earlier one (`next`), which replaces the present slots.
        return self._next.get(allocation.allocation_id) or allocation.next or allocation.slots

    def next_size(self, item: str) -> int:
        """Slots with which the trial of an allocation continues after a resize in this pass; 0: it was told to leave for good."""
        return count(self._next[item]) if item in self._next else 0

    def surplus(self, allocation: Allocation) -> int:
        """Slots above its least that it could give up; none if it is about to grow, or was just told to leave."""
        experiment = self.state.experiments[allocation.experiment_id]
        item = allocation.allocation_id
        # A resized allocation is in `taken`, too; only one without a next size leaves for good.
        told = item in self.taken and item not in self._next
        if not gives_way(experiment, allocation) or told or allocation.gained or self.next_size(item) > allocation.size:
            return 0
        return count(self.slots_soon(allocation)) - experiment.slots_per_trial

    # Deciding.

    def _gains(self, experiment: Experiment, slots: int) -> None:
        self.granted[experiment.experiment_id] = self.granted.get(experiment.experiment_id, 0) + slots
        for owner in experiment.owners:
            self.granted_to[owner] = self.granted_to.get(owner, 0) + slots

    def grant(
        self,
        demand: TrialDemand,
        slots: tuple[AgentSlots, ...],
        reason: Reason,
        *,
        lender: str = "",
        backfill_until_us: int | None = None,
        turn_until_us: int | None = None,
    ) -> None:
        """Grants the slots. `lender`: the pool that lends them, if it is another one."""
        experiment, trial, size = demand.experiment, demand.trial_id, sum([len(part.slot_ids) for part in slots])
        self._gains(experiment, size)
        self.drafts.append(
            AllocationGranted(
                pool=lender or self.pool.name,
                # The count before this pass is enough: a trial is granted slots at most once in a pass.
                allocation_id=allocation_id(trial, experiment.trials[demand.number].grants + 1),
                trial_id=trial,
                experiment_id=experiment.experiment_id,
                slots=slots,
                reason=reason,
                backfill_until_us=backfill_until_us,
                turn_until_us=turn_until_us,
            )
        )
        if self.fairness is not None:
            # Lent slots are another pool's, so they do not count against the owner in this one.
            self.fairness.granted(experiment, 0 if lender else size)

    def preempt(
        self,
        demand: TrialDemand,
        chosen: Sequence[Candidate],
        why: Sequence[dict[str, Any]],
        *,
        free: int,
        leaving: int,
        missing: int,
    ) -> None:
        """Preempts the chosen gangs for the demand, with the numbers of slots that are free, being freed and missing. `why`: what
        the policy compared, by gang."""
        experiment = demand.experiment
        for victim, compared in zip(chosen, why, strict=True):
            allocation = victim.allocation
            other = self.state.experiments[allocation.experiment_id]
            self.taken.add(allocation.allocation_id)
            numbers = Preempts(
                priority=other.priority,
                wanted_by_trial=demand.trial_id,
                wanted_by_priority=experiment.priority,
                slots_wanted=experiment.slots_per_trial,
                slots_freed=victim.freed,
                victims=len(chosen),
                slots_free=free,
                slots_leaving=leaving,
                slots_missing=missing,
                **compared,
            )
            self.drafts.append(preempted(self.pool.name, allocation, numbers.reason(f"{self.policy}.preempts")))
            if self.fairness is not None:
                self.fairness.add(other, -allocation.size)
        self.note(experiment, Preempting(**gang(experiment), victims=len(chosen)))

    def resize(self, allocation: Allocation, slots: SlotSet, reason: Reason) -> None:
        """Decides a resize: the trial goes on with these slots. Replaces an earlier decision on its size."""
        if self.fairness is not None:
            # Computed before `_next` is set below: the change is against the size decided so far.
            change = count(slots) - count(self.slots_soon(allocation))
            self.fairness.add(self.state.experiments[allocation.experiment_id], change)
        draft = resized(allocation, slots, reason)
        at = self._draft_at.setdefault(allocation.allocation_id, len(self.drafts))
        # The slice replaces an earlier draft on this allocation, or appends where `at` is the end of the list.
        self.drafts[at:] = [draft, *self.drafts[at + 1 :]]
        self._next[allocation.allocation_id] = slots
        self.taken.add(allocation.allocation_id)

    def grow(self, experiment: Experiment, slots: int) -> None:
        """Gives one of its trials this number of slots more than it has, or was granted."""
        self._gains(experiment, slots)
        self.grown[experiment.experiment_id] = self.grown.get(experiment.experiment_id, 0) + slots

    def enlarge_grant(self, at: int, slots: SlotSet) -> None:
        """Replaces the slots of the grant in this draft."""
        draft = self.drafts[at]
        assert isinstance(draft, AllocationGranted)
        most = self.state.experiments[draft.experiment_id].slots_most
        reason = draft.reason.model_copy(update={"numbers": {**draft.reason.numbers, "slots_max": most}})
        self.drafts[at] = draft.model_copy(update={"slots": _parts(slots), "reason": reason})


def preempted(pool: str, allocation: Allocation, reason: Reason) -> AllocationPreempted:
    """`pool`: that of the decision, which is another one than the allocation's where its agent changed pools meanwhile."""
    return AllocationPreempted(
        pool=pool,
        allocation_id=allocation.allocation_id,
        trial_id=allocation.trial_id,
        experiment_id=allocation.experiment_id,
        reason=reason,
    )


def resized(allocation: Allocation, slots: SlotSet, reason: Reason) -> AllocationResized:
    return AllocationResized(
        pool=allocation.pool,
        allocation_id=allocation.allocation_id,
        trial_id=allocation.trial_id,
        experiment_id=allocation.experiment_id,
        slots=_parts(slots),
        reason=reason,
    )


def _parts(slots: SlotSet) -> tuple[AgentSlots, ...]:
    return tuple(AgentSlots(agent_id=agent_id, slot_ids=slot_ids) for agent_id, slot_ids in slots)
