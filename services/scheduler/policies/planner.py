"""What all policies share: how a waiting gang is placed, waited for, lent slots, or given those of others.

A gang that is next
1. is granted if it fits the free slots (of its own pool, else of a fallback pool where nobody waits);
2. waits for slots that are being freed already, if these and the free ones together suffice;
3. else preempts the cheapest running gangs that it may preempt, if that makes it fit;
4. else is *held*: it waits, and what is behind it may not take the slots that it waits for.
In cases 2 and 3 nothing behind it may take the free slots: they are a part of what it is waiting for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, AllocationPreempted
from tenuto.schemas.ids import allocation_id, trial_id
from tenuto.schemas.sentences.grants import Backfills, Fits, Granted, Lent
from tenuto.schemas.sentences.leaving import Preempts
from tenuto.schemas.sentences.waiting import Limit, Preempting, Soon, TooLarge, Waiting
from tenuto.services.scheduler.policies.lending import Lenders
from tenuto.services.scheduler.policies.placement import Ground, Room, for_trial
from tenuto.services.scheduler.policies.reasons import OrderNumbers, gang
from tenuto.services.scheduler.policies.victims import Candidate, cheapest
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State

Outcome = Literal["granted", "soon", "never", "limit", "held", "aside"]
"""soon: its slots are being freed. limit: its owner may use no more. held: it waits and holds slots back. aside: it waits, and
holds back only a room of its own."""


class Reserved(NamedTuple):
    """What a held gang is promised."""

    start_us: int
    extra: int
    """Slots that are free at that time and that it does not need."""
    trial: str = ""
    """Whose end gives it the last of its slots."""


class Planner:
    """One pass over one pool. A policy says in what order gangs are served, and who may preempt whom."""

    policy = ""

    def __init__(self, state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> None:
        """`notes`: filled with why each experiment waits. It changes no decision."""
        self.state, self.pool, self.now_us, self.notes = state, pool, now_us, notes
        self.ground = Ground(state, pool)
        self.free = self.ground.free
        self.claimed = False
        """True: all free slots are a part of what an earlier gang waits for."""
        self.leaving = pool.coming
        """Slots being freed that no earlier gang waits for."""
        self.taken: set[str] = set()
        """Allocations preempted in this pass."""
        self.reserved: Reserved | None = None
        """Of the held gang that the next ones are behind."""
        self.blocked = False
        """True: a gang waits that could use slots as soon as there are enough."""
        self.size = 0
        """Slots that the gang that was served last has, or waits for."""
        self.drafts: list[EventData] = []
        self.granted_to: dict[str, int] = {}
        """Owner -> slots granted in this pass."""
        self.granted_slots: dict[int, int] = {}
        """Experiment -> slots granted in this pass."""
        self._lenders = Lenders(state, now_us, self.quota_left)

    # What a policy says.

    def rank(self, experiment: Experiment, allocation: Allocation) -> int | None:
        """How much a running gang deserves to stay, 0 least; None: it may not be preempted for this experiment."""
        raise NotImplementedError

    def candidates(self, experiment: Experiment, missing: int) -> Sequence[Candidate]:
        """Running gangs that may be preempted for it, enough of them to choose the cheapest set from."""
        raise NotImplementedError

    def order(self, experiment: Experiment) -> OrderNumbers:
        """By what the policy orders experiments: why this one is next."""
        raise NotImplementedError

    # What is built on it: constraints (`rooms`), elastic trials (`elastic`), and reservations (`backfilling`).

    def size_of(self, experiment: Experiment, used: int) -> int:
        """Slots that its next trial should have; an elastic one can start with less."""
        return experiment.slots_per_trial

    def size_lent(self, experiment: Experiment, used: int, lender: Pool, free: int) -> int:
        """The same of one that starts on a fallback pool's free slots."""
        return experiment.slots_per_trial

    def shrink_for(self, experiment: Experiment, missing: int, room: Room | None = None) -> int:
        """Let elastic trials give up slots, of these agents only if a room is given. How many are being freed: at least
        `missing`, or none."""
        return 0

    def serve_in_rooms(self, experiment: Experiment, number: int) -> Outcome:
        """The same as `serve` for a gang with constraints that does not fit now."""
        raise NotImplementedError

    def shrink_inside(self, experiment: Experiment) -> None:
        """Let the experiment's larger trials give up slots for its own waiting ones."""

    def turn_until(self, experiment: Experiment) -> int | None:
        """Until when the experiment is entitled to what it is granted now, where that is its turn."""
        return None

    def reserved_for(self, experiment: Experiment) -> Reserved | None:
        """The start of a gang that is held."""
        return None

    # Serving one gang.

    def available(self) -> int:
        return 0 if self.claimed else self.free.count

    def serve(self, experiment: Experiment, number: int, used: int) -> Outcome:
        """Place the experiment's waiting trial. `used`: slots that the experiment holds or was promised."""
        self.size = experiment.slots_per_trial
        experiment = for_trial(experiment, number)
        if self.over_limit(experiment, used):
            self.shrink_inside(experiment)
            return "limit"
        if self._start(experiment, number, used) or self.borrow(experiment, number, used):
            return "granted"
        outcome = self._serve_waiting(experiment, number, used)
        self.blocked = self.blocked or outcome != "never"
        return outcome

    def _serve_waiting(self, experiment: Experiment, number: int, used: int) -> Outcome:
        """One that does not fit now."""
        if experiment.constraints is not None:
            return self.serve_in_rooms(experiment, number)
        if experiment.slots_per_trial > self.pool.capacity:
            self.note(experiment, TooLarge(**gang(experiment), slots_offered=self.pool.capacity))
            return "never"
        free = self.available()
        for wanted in sorted({self.size_of(experiment, used), experiment.slots_per_trial}, reverse=True):
            if self._wait_for(experiment, number, wanted, free):
                self.size = wanted
                self.claimed = True
                return "soon"
        self._note_held(experiment, free)
        return "held"

    def _start(self, experiment: Experiment, number: int, used: int) -> bool:
        """Grant what fits. An elastic trial waits for slots that are being freed, if they give it all it should have."""
        if self.claimed:
            return False
        before, wanted = self.free.count, self.size_of(experiment, used)
        if wanted > before and before + self.leaving < wanted:
            wanted = max(before, experiment.slots_per_trial)
        slots = self.ground.take(experiment.constraints, wanted)
        if slots is None and wanted > experiment.slots_per_trial and before >= wanted:
            slots = self.ground.take(experiment.constraints, experiment.slots_per_trial)
        if slots is None:
            return False
        self.grant(experiment, number, used, slots, before)
        return True

    def _wait_for(self, experiment: Experiment, number: int, wanted: int, free: int) -> bool:
        """Whether so many slots are being freed for it: they are already, or others give way from now on."""
        if wanted <= free + self.leaving:
            self.leaving -= wanted - free
            self.note(experiment, Soon(**gang(experiment), slots_free=free))
            return True
        missing = wanted - free - self.leaving
        if freed := self.shrink_for(experiment, missing):
            self.leaving = freed - missing
            return True
        chosen = self.victims_for(experiment, missing, None, None)
        if not chosen:
            return False
        self.preempt(experiment, number, chosen, free, self.leaving, missing)
        freed = sum(victim.freed for victim in chosen)
        self.leaving = freed + self.shrink_for(experiment, missing - freed) - missing
        return True

    def victims_for(
        self, experiment: Experiment, missing: int, inside: Sequence[Candidate] | None, room: Room | None
    ) -> list[Candidate]:
        """The cheapest gangs that must go for it; where they free less than `missing`, elastic trials shrink for the rest.
        `inside`: the candidates of a room."""
        return cheapest(self.candidates(experiment, missing) if inside is None else inside, missing, self.now_us)

    def over_limit(self, experiment: Experiment, used: int) -> bool:
        wanted = experiment.slots_per_trial
        if experiment.max_slots is not None and used + wanted > experiment.max_slots:
            owner = f"experiment {experiment.experiment_id}"
            self.note(experiment, Limit(owner=owner, slots_used=used, slots_max=experiment.max_slots))
            return True
        if not self.state.shares:
            return False
        for owner in experiment.owners:
            left = self.quota_left(owner, experiment)
            if left is not None and wanted > left:
                most = self.state.shares[owner].max_slots or 0
                self.note(experiment, Limit(owner=owner.replace("/", " ", 1), slots_used=most - left, slots_max=most))
                return True
        return False

    def quota_left(self, owner: str, experiment: Experiment | None = None) -> int | None:
        """Slots that a workspace or user may use in addition; None: any number. `experiment`: for this one, where they differ."""
        share = self.state.shares.get(owner)
        if share is None or share.max_slots is None:
            return None
        return share.max_slots - self.state.owner_slots.get(owner, 0) - self.granted_to.get(owner, 0)

    def grant(
        self,
        experiment: Experiment,
        number: int,
        used: int,
        slots: tuple[AgentSlots, ...],
        free: int,
        *,
        pool: str = "",
        backfill: Reserved | None = None,
    ) -> None:
        trial = trial_id(experiment.experiment_id, number)
        self.size = sum(len(part.slot_ids) for part in slots)
        rule, why = self._why_granted(experiment, used, free, pool, backfill)
        self.granted_slots[experiment.experiment_id] = self.granted_slots.get(experiment.experiment_id, 0) + self.size
        for owner in experiment.owners:
            self.granted_to[owner] = self.granted_to.get(owner, 0) + self.size
        self.drafts.append(
            AllocationGranted(
                pool=pool or self.pool.name,
                allocation_id=allocation_id(trial, experiment.trials[number].grants + 1),
                trial_id=trial,
                experiment_id=experiment.experiment_id,
                slots=slots,
                reason=why.reason(f"{self.policy}.{rule}"),
                backfill_until_us=backfill.start_us if backfill else None,
                turn_until_us=None if pool else self.turn_until(experiment),
            )
        )

    def _why_granted(
        self, experiment: Experiment, used: int, free: int, pool: str, backfill: Reserved | None
    ) -> tuple[str, Granted]:
        """The rule and what it compared."""
        numbers: Any = {
            **self.order(experiment),
            "slots_wanted": self.size,
            "slots_free": free,
            "experiment_slots_used": used,
            "experiment_slots_max": experiment.max_slots,
        }
        if pool:
            least = None if self.size == experiment.slots_per_trial else experiment.slots_per_trial
            return "lent", Lent(**numbers, home_pool=experiment.pool, slots_min=least)
        return ("fits", Fits(**numbers)) if backfill is None else ("backfills", Backfills(**numbers))

    def borrow(self, experiment: Experiment, number: int, used: int) -> bool:
        """Slots of a fallback pool that nobody of its own waits for."""
        for name in experiment.fallback_pools:
            ground = self._lenders.ground(name)
            if ground is None:
                continue
            free = ground.free.count
            wanted = self.size_lent(experiment, used, ground.pool, free)
            slots = ground.take(experiment.constraints, wanted)
            if slots is None and wanted > experiment.slots_per_trial:
                slots = ground.take(experiment.constraints, experiment.slots_per_trial)
            if slots is not None:
                self.grant(experiment, number, used, slots, free, pool=name)
                return True
        return False

    # Preemption.

    def preempt(
        self,
        experiment: Experiment,
        number: int,
        chosen: Sequence[Candidate],
        free: int,
        leaving: int,
        missing: int,
    ) -> None:
        """The chosen gangs leave for the experiment's trial."""
        trial = trial_id(experiment.experiment_id, number)
        for victim in chosen:
            self.taken.add(victim.allocation.allocation_id)
            why = Preempts(
                priority=self.state.experiments[victim.allocation.experiment_id].priority,
                wanted_by_trial=trial,
                wanted_by_priority=experiment.priority,
                slots_wanted=experiment.slots_per_trial,
                slots_free=free,
                slots_leaving=leaving,
                slots_missing=missing,
                slots_freed=victim.freed,
                victims=len(chosen),
                **self.why_preempted(experiment, number, victim),
            )
            self.drafts.append(
                AllocationPreempted(
                    pool=self.pool.name,
                    allocation_id=victim.allocation.allocation_id,
                    trial_id=trial_id(victim.allocation.experiment_id, victim.allocation.trial_number),
                    experiment_id=victim.allocation.experiment_id,
                    reason=why.reason(f"{self.policy}.preempts"),
                )
            )
        self.note(experiment, Preempting(**gang(experiment), victims=len(chosen)))

    def why_preempted(self, experiment: Experiment, number: int, victim: Candidate) -> dict[str, Any]:
        """Why this gang gives way to that trial: what the policy compared beside the priorities, as fields of `Preempts`."""
        other, until_us = self.state.experiments[victim.allocation.experiment_id], victim.allocation.backfill_until_us
        if until_us is not None and until_us <= self.now_us and (other.priority <= experiment.priority or self.policy == "fifo"):
            late_seconds = (self.now_us - until_us) // 1_000_000
            return {"backfill_until_us": until_us, "late_seconds": late_seconds}
        return {}

    # For whoever asks why somebody waits.

    def note(self, experiment: Experiment, waiting: Waiting) -> None:
        if self.notes is not None and experiment.experiment_id not in self.notes:
            self.notes[experiment.experiment_id] = waiting

    def _note_held(self, experiment: Experiment, free: int) -> None:
        """Why a held gang waits (see `aside`)."""
