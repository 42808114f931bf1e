"""Backfill: gangs behind a held one start before it if they are expected to end by then, or use only slots that it leaves over
(EASY backfilling: Lifka, The ANL/IBM SP scheduling system, 1995).

What starts behind held gangs delays none of those that could not have its slots back. One that runs longer than it said is
preempted when the held gang needs its slots.
"""

from __future__ import annotations

from tenuto.schemas.sentences.waiting import Behind
from tenuto.services.scheduler.policies.decisions import TrialDemand, demand_of
from tenuto.services.scheduler.policies.quotas import Quotas
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.policies.reservations import Reservations
from tenuto.services.scheduler.policies.room_reservations import HeldGang, PromisedStart
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.starting import Starting
from tenuto.services.scheduler.state import Experiment

BACKFILL_LOOKED_AT_MAX = 500
"""Experiments behind a held gang that are tried: bounds a pass over a long queue."""


class Backfill:
    def __init__(self, rules: PolicyRules, quotas: Quotas, reservations: Reservations, starting: Starting) -> None:
        self._quotas, self._reservations, self._starting = quotas, reservations, starting
        self._decisions, self._supply = rules.decisions, rules.supply

    def backfill(self, experiment: Experiment) -> None:
        """Start what it can of an experiment behind held gangs without delaying those."""
        used = experiment.slots_used
        for number in experiment.waiting:
            if self._quotas.over_limit(experiment, used):
                return
            demand = demand_of(experiment, number, used)
            closed = self._reservations.in_rooms.close_for(experiment)
            size = self._start(demand)
            self._reservations.in_rooms.reopen(closed)
            size = size or self._starting.on_lent_slots(demand)
            if not size:
                self._decisions.note(experiment, Behind(**gang(experiment)))
                return
            used += size

    def _start(self, demand: TrialDemand) -> int:
        """Number of slots that it starts on; 0: it does not start."""
        experiment, wanted, supply = demand.experiment, demand.wanted, self._supply
        free = supply.available()
        if wanted > free and not self._reservations.in_rooms.may_lend():
            return 0
        end_us = None if experiment.expected_us is None else self._decisions.now_us + experiment.expected_us
        first: PromisedStart | None = None
        """The earliest start that it must not delay by running longer than it says."""
        beside: list[HeldGang] = []
        """Held gangs beside which it runs."""
        for item in self._reservations.binding(experiment):
            if item.start is None or item.start.delayed_by(end_us, wanted):
                return 0
            if item.start.ends_before(end_us):
                first = item.start if first is None else min(first, item.start)
            else:
                beside.append(item)
        slots = None if supply.claimed else supply.ground.take(experiment.constraints, wanted)
        if slots is None:
            found = self._reservations.in_rooms.take(demand)
            if found is None:
                return 0
            slots, free, other = found
            first = min((item for item in (first, other) if item is not None), default=None)
        # Only now: a gang that found no slots must not use up what held gangs leave over.
        for item in beside:
            item.use_extra(wanted)
        return self._starting.grant(demand, slots, free, backfill=first)
