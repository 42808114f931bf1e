"""Priority with preemption, and no starvation within a priority.

Waiting trials are served in the order (priority, experiment, trial). A gang that fits the free slots is granted. One that does
not:
1. waits for slots that are being freed already, if free and freed slots together suffice;
2. else preempts allocations of strictly lower priority, if that makes it fit. They are the least urgent first, of these the
   smallest, of these the latest granted (least work to lose), and none that the gang could do without;
3. else holds back the trials behind it at its own priority until it fits, so that small gangs cannot starve a large one.
   Trials of lower priority may use the slots meanwhile: they can be preempted.
In cases 1 and 2 nothing behind it may take the free slots: they are a part of what it is waiting for.

Skipped, holding nobody back: experiments at their slot limit, and gangs larger than all usable slots of the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.ids import allocation_id, trial_id
from tenuto.services.scheduler.policies.placement import FreeSlots
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State, slots_coming_back


def plan(state: State, pool: Pool) -> list[EventData]:
    """Grants and preemptions that should happen now, in order. Empty when there is nothing to do."""
    return _Pass(state, pool).run() if pool.queue else []


class Victim(NamedTuple):
    allocation: Allocation
    priority: int
    freed: int
    """Slots that can be used again when it is gone."""


class _Pass:
    def __init__(self, state: State, pool: Pool) -> None:
        self.state = state
        self.pool = pool
        self.free = FreeSlots(pool.idle, pool.free, lambda agent_id: state.agents[agent_id].free)
        self.claimed = False
        """True: all free slots are a part of what an earlier gang waits for."""
        self.leaving = pool.coming
        """Slots being freed that no earlier gang waits for."""
        self.victims: Sequence[tuple[int, int, int, str]] = pool.victims
        """Those that may still be preempted, in the order of choice."""
        self.drafts: list[EventData] = []

    def run(self) -> list[EventData]:
        held = 0
        """The priority level that is held back by a gang that must wait; 0: none."""
        for priority, experiment_id in self.pool.queue:
            if self._free() == 0 and priority >= self._least_urgent():
                break  # Nothing to give and nobody to preempt, here and further down.
            if priority != held and not self._serve(self.state.experiments[experiment_id]):
                held = priority
        return self.drafts

    def _least_urgent(self) -> int:
        return -self.victims[0][0] if self.victims else 0

    def _free(self) -> int:
        return 0 if self.claimed else self.free.count

    def _serve(self, experiment: Experiment) -> bool:
        """Serve the experiment's waiting trials. False: one must wait, and those behind it at its priority with it."""
        wanted = experiment.slots_per_trial
        if wanted > self.pool.capacity:
            return True
        used = experiment.slots_used
        for number in experiment.waiting:
            if experiment.max_slots is not None and used + wanted > experiment.max_slots:
                return True
            free = self._free()
            if wanted <= free:
                self._grant(experiment, number, used)
            elif wanted <= free + self.leaving:
                self.leaving -= wanted - free
                self.claimed = True
            elif not self._preempt(experiment, number, wanted - free - self.leaving):
                return False
            used += wanted
        return True

    def _grant(self, experiment: Experiment, number: int, used: int) -> None:
        wanted, free = experiment.slots_per_trial, self.free.count
        slots = self.free.take(wanted)
        trial = trial_id(experiment.experiment_id, number)
        where = ", ".join(f"{part.agent_id} ({len(part.slot_ids)})" for part in slots[:3])
        more = f" and {len(slots) - 3} more agents" if len(slots) > 3 else ""
        self.drafts.append(
            AllocationGranted(
                pool=self.pool.name,
                allocation_id=allocation_id(trial, experiment.trials[number].grants + 1),
                trial_id=trial,
                experiment_id=experiment.experiment_id,
                slots=slots,
                reason=Reason(
                    rule="priority.fits",
                    text=f"Trial {trial} is next at priority {experiment.priority} and needs {wanted} of "
                    f"{free} free slots; it gets slots of {where}{more}.",
                    numbers={
                        "priority": experiment.priority,
                        "slots_wanted": wanted,
                        "slots_free": free,
                        "experiment_slots_used": used,
                        "experiment_slots_max": experiment.max_slots,
                        "agents": len(slots),
                    },
                ),
            )
        )

    def _preempt(self, experiment: Experiment, number: int, missing: int) -> bool:
        chosen = self._choose_victims(experiment.priority, missing)
        if not chosen:
            return False
        trial = trial_id(experiment.experiment_id, number)
        wanted, free, leaving = experiment.slots_per_trial, self._free(), self.leaving
        for victim, priority, freed in chosen:
            victim_trial = trial_id(victim.experiment_id, victim.trial_number)
            self.drafts.append(
                AllocationPreempted(
                    pool=self.pool.name,
                    allocation_id=victim.allocation_id,
                    trial_id=victim_trial,
                    experiment_id=victim.experiment_id,
                    reason=Reason(
                        rule="priority.preempts",
                        text=f"Trial {trial} of priority {experiment.priority} needs {wanted} slots, {missing} more than are "
                        f"free or being freed; trial {victim_trial} of priority {priority} gives way with {freed}.",
                        numbers={
                            "priority": priority,
                            "wanted_by_trial": trial,
                            "wanted_by_priority": experiment.priority,
                            "slots_wanted": wanted,
                            "slots_free": free,
                            "slots_leaving": leaving,
                            "slots_missing": missing,
                            "slots_freed": freed,
                            "victims": len(chosen),
                        },
                    ),
                )
            )
        self.leaving = sum(victim.freed for victim in chosen) - missing
        self.claimed = True
        return True

    def _choose_victims(self, priority: int, missing: int) -> list[Victim]:
        """The cheapest victims that free `missing` slots; empty: there are none."""
        chosen: list[Victim] = []
        total = looked_at = 0
        for rank, _, _, item in self.victims:
            if total >= missing or -rank <= priority:
                break
            looked_at += 1
            allocation = self.state.allocations[item]
            freed = slots_coming_back(self.state, self.pool, allocation)
            if freed:
                chosen.append(Victim(allocation, -rank, freed))
                total += freed
        if total < missing:
            return []
        needed: list[Victim] = []
        for victim in reversed(chosen):
            if total - victim.freed >= missing:
                total -= victim.freed
            else:
                needed.append(victim)
        needed.reverse()
        taken = {victim.allocation.allocation_id for victim in needed}
        spared = [entry for entry in self.victims[:looked_at] if entry[3] not in taken]
        self.victims = [*spared, *self.victims[looked_at:]]
        return needed
