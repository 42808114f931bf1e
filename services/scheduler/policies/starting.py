"""Gangs that start now: on free slots, on those of reserved rooms where they delay no other gang, or on those of another pool."""

from __future__ import annotations

from typing import Any

from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.sentences.grants import Backfills, Fits, Granted, Lent
from tenuto.services.scheduler.policies.decisions import TrialDemand
from tenuto.services.scheduler.policies.lending import Lenders
from tenuto.services.scheduler.policies.quotas import Quotas
from tenuto.services.scheduler.policies.room_reservations import PromisedStart, RoomReservations
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.state import Experiment, Pool


class Starting:
    def __init__(self, rules: PolicyRules, quotas: Quotas, reserved: RoomReservations) -> None:
        self._rules, self._quotas, self._reserved = rules, quotas, reserved
        self._decisions, self._supply = rules.decisions, rules.supply
        self._lenders: Lenders | None = None

    # Each returns the slots that it starts on; 0: it does not.

    def on_free_slots(self, demand: TrialDemand) -> int:
        """An elastic trial waits for slots that are being freed, if they give it all it should have."""
        if self._supply.claimed:
            return 0
        free, wanted = self._supply.free.count, self.size_wanted(demand)
        # Waiting would not give it all it should have, so it starts with what is free.
        if wanted > free and free + self._supply.leaving < wanted:
            wanted = max(free, demand.wanted)
        # More than is free is never found: then the trial waits for slots that are being freed.
        slots = self._supply.ground.take(demand.experiment.constraints, wanted)
        # There are enough slots, but no room has them all: the least may still fit into one.
        if slots is None and wanted > demand.wanted and free >= wanted:
            slots = self._supply.ground.take(demand.experiment.constraints, demand.wanted)
        return 0 if slots is None else self.grant(demand, slots, free)

    def on_reserved_slots(self, demand: TrialDemand) -> int:
        """Starts it on slots of reserved rooms, if it ends before their gangs start, or uses slots that these leave over."""
        found = self._reserved.take(demand)
        if found is None:
            return 0
        slots, free, first = found
        return self.grant(demand, slots, free, backfill=first)

    def on_lent_slots(self, demand: TrialDemand) -> int:
        """Starts it on slots of a fallback pool that none of the pool's own trials waits for."""
        experiment = demand.experiment
        for name in experiment.fallback_pools:
            if self._lenders is None:
                self._lenders = Lenders(self._decisions.state, self._decisions.now_us, self._quotas.most)
            ground = self._lenders.ground(name)
            if ground is None:
                continue
            free = ground.free.count
            wanted = self._size_lent(demand, ground.pool, free)
            slots = ground.take(experiment.constraints, wanted)
            if slots is None and wanted > demand.wanted:
                slots = ground.take(experiment.constraints, demand.wanted)
            if slots is not None:
                return self.grant(demand, slots, free, lender=name)
        return 0

    # Sizes.

    def size_wanted(self, demand: TrialDemand) -> int:
        """Slots that the trial should have; an elastic one can start with less. Under fair share its part of the experiment's."""
        experiment = demand.experiment
        if not experiment.elastic:
            return demand.wanted
        part = self._rules.part_of_share(experiment)
        return max(demand.wanted, self._quotas.most(experiment, demand.used, part)) if part > demand.wanted else demand.wanted

    def _size_lent(self, demand: TrialDemand, lender: Pool, free: int) -> int:
        """Size of a borrowing gang. If the lender has no elastic trials: the free slots, divided evenly among those that wait."""
        experiment = demand.experiment
        if not experiment.elastic or lender.elastic:
            return demand.wanted
        most = min(experiment.slots_most, free // max(1, len(experiment.waiting)))
        return max(demand.wanted, self._quotas.most(experiment, demand.used, most))

    # Granting.

    def grant(
        self,
        demand: TrialDemand,
        slots: tuple[AgentSlots, ...],
        free: int,
        *,
        lender: str = "",
        backfill: PromisedStart | None = None,
    ) -> int:
        """`free`: slots that were free before. `backfill`: the start of a held gang that it must not delay by running longer than
        it says. Returns how many slots these are."""
        experiment, size = demand.experiment, sum([len(part.slot_ids) for part in slots])
        numbers: dict[str, Any] = {
            **self._rules.order(experiment),
            "slots_wanted": size,
            "slots_free": free,
            "experiment_slots_used": demand.used,
            "experiment_slots_max": experiment.max_slots,
        }
        rule, why = _why(experiment, size, numbers, lender, backfill)
        self._decisions.grant(
            demand,
            slots,
            why.reason(f"{self._decisions.policy}.{rule}"),
            lender=lender,
            backfill_until_us=backfill.start_us if backfill else None,
            turn_until_us=None if lender else self._rules.turn_until(experiment),
        )
        return size


def _why(
    experiment: Experiment, size: int, numbers: dict[str, Any], lender: str, backfill: PromisedStart | None
) -> tuple[str, Granted]:
    """The rule and what it compared."""
    if lender:
        least = None if size == experiment.slots_per_trial else experiment.slots_per_trial
        return "lent", Lent(**numbers, home_pool=experiment.pool, slots_min=least)
    return ("fits", Fits(**numbers)) if backfill is None else ("backfills", Backfills(**numbers))
