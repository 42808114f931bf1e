"""Limits of experiments, and quotas of workspaces and users; and gangs for which a quota is kept.

A gang that its owner's quota keeps back, though it would fit in, is not overtaken by that owner's later ones: otherwise small
trials would use the quota for ever. Where the policy preempts, it takes the cheapest of the owner's own less urgent trials
that suffice, if it then gets its slots, too. Until it can, those that it could preempt may use the quota.
"""

from __future__ import annotations

from typing import NamedTuple

from tenuto.schemas.sentences.waiting import Limit
from tenuto.services.scheduler.policies.decisions import TrialDemand
from tenuto.services.scheduler.policies.reclaiming import Reclaiming
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.victims import Candidate, cheapest
from tenuto.services.scheduler.state import Experiment
from tenuto.services.scheduler.state.usable import slots_coming_back


class QuotaReservation(NamedTuple):
    """A gang for which an owner's quota is kept."""

    experiment: Experiment
    soon: bool
    """True if the part of the quota that it needs is being freed."""


class Quotas:
    """Slots left by limits and quotas during a pass. Nothing is promised or kept unless the policy's queue says so."""

    def __init__(self, rules: PolicyRules) -> None:
        self._rules, self._decisions, self._state = rules, rules.decisions, rules.state
        self.keepers: dict[str, list[QuotaReservation]] = {}
        """Keepers by owner, at most one of each priority: those behind it need no other."""
        self._promised: dict[str, int] = {}
        """Owner -> slots that are being freed for its gangs, as was decided in this pass."""
        self._freed: dict[str, int] | None = None
        """Owner -> slots of its gangs that leave, in all pools: counted on first use."""

    def most(self, experiment: Experiment, used: int, slots: int) -> int:
        """Slots out of `slots` that one of its trials may have. `used`: slots that the experiment holds or was promised."""
        if experiment.max_slots is not None:
            slots = min(slots, experiment.max_slots - used)
        for owner in experiment.owners if self._state.shares else ():
            left = self.left(owner)
            slots = slots if left is None else min(slots, left)
        return slots

    def over_limit(self, experiment: Experiment, used: int) -> bool:
        wanted = experiment.slots_per_trial
        for owner in experiment.owners if self.keepers else ():
            whole, left = self.unpromised(owner), self.left(owner, experiment)
            if whole is not None and left is not None and left < wanted <= whole:
                ahead = self.keepers[owner][0].experiment
                kept = {"ahead_experiment": ahead.experiment_id, "slots_wanted_ahead": ahead.slots_per_trial}
                self._decisions.note(experiment, Limit(owner=owner.replace("/", " ", 1), **kept))
                return True
        if experiment.max_slots is not None and used + wanted > experiment.max_slots:
            name = f"experiment {experiment.experiment_id}"
            self._decisions.note(experiment, Limit(owner=name, slots_used=used, slots_max=experiment.max_slots))
            return True
        for owner in experiment.owners if self._state.shares else ():
            left = self.left(owner, experiment)
            if left is not None and wanted > left:
                most = self._state.shares[owner].max_slots or 0
                self._decisions.note(experiment, Limit(owner=owner.replace("/", " ", 1), slots_used=most - left, slots_max=most))
                return True
        return False

    def left(self, owner: str, experiment: Experiment | None = None) -> int | None:
        """Slots that a workspace or user may use in addition; None: any number. `experiment`: for this one, if they differ."""
        whole = self.unpromised(owner)
        if whole is None or owner not in self.keepers:
            return whole
        return min(whole, self.left_soon(owner, whole, experiment))

    def unpromised(self, owner: str) -> int | None:
        """Same as `left`, but includes slots kept for a gang."""
        share = self._state.shares.get(owner)
        if share is None or share.max_slots is None:
            return None
        gone = self._decisions.granted_to.get(owner, 0) + self._promised.get(owner, 0)
        return share.max_slots - self._state.owner_slots.get(owner, 0) - gone

    def left_soon(self, owner: str, whole: int, experiment: Experiment | None) -> int:
        """Slots of the quota that will be left, without those kept, once leaving allocations have left."""
        kept = sum(
            keeper.experiment.slots_per_trial
            for keeper in self.keepers.get(owner, ())
            if experiment is None or keeper.soon or not self._rules.gives_quota_back(experiment, keeper.experiment)
        )
        return whole + self._being_freed(owner) - kept

    def promise(self, experiment: Experiment, slots: int) -> None:
        """Counts this number of slots as being freed for the owner."""
        for owner in experiment.owners if self._state.shares else ():
            self._promised[owner] = self._promised.get(owner, 0) + slots

    def frees(self, experiment: Experiment, slots: int) -> None:
        """Counts this number of the owner's slots as being freed from now on."""
        # Counts what the state has first: that count begins anew, and would lose what is added here.
        self._being_freed("")
        assert self._freed is not None
        for owner in experiment.owners:
            self._freed[owner] = self._freed.get(owner, 0) + slots

    def _being_freed(self, owner: str) -> int:
        if self._freed is None:
            self._freed = {}
            for name in sorted(self._state.pools):
                for item in self._state.pools[name].leaving:
                    allocation = self._state.allocations[item]
                    self.frees(self._state.experiments[allocation.experiment_id], sum(len(ids) for _, ids in allocation.given_up))
        return self._freed.get(owner, 0)


class QuotaKeeping:
    """Keeps quotas for gangs that wait because of them, and frees quotas if the policy preempts."""

    def __init__(self, rules: PolicyRules, quotas: Quotas, reclaiming: Reclaiming) -> None:
        self._rules, self._quotas, self._reclaiming = rules, quotas, reclaiming
        self._decisions, self._supply, self._state, self._pool = rules.decisions, rules.supply, rules.state, rules.pool

    def keep_for(self, demand: TrialDemand) -> None:
        """Keeps quota for the next gang, which may not start because of a limit. Nothing is kept for a gang that could never
        start."""
        experiment, wanted = demand.experiment, demand.wanted
        if experiment.max_slots is not None and demand.used + wanted > experiment.max_slots:
            return
        if not self._state.shares or wanted > self._pool.capacity:
            return
        if experiment.constraints is not None and not self._supply.ground.rooms(experiment.constraints, wanted):
            return
        short: dict[str, int] = {}
        """Owner -> slots of its quota that are missing."""
        for owner in experiment.owners:
            share, whole = self._state.shares.get(owner), self._quotas.unpromised(owner)
            if share is None or share.max_slots is None or whole is None:
                continue
            kept = self._quotas.keepers.get(owner, ())
            if share.max_slots < wanted or any(item.experiment.priority == experiment.priority for item in kept):
                return
            soon_left = self._quotas.left_soon(owner, whole, experiment)
            if wanted > min(whole, soon_left):
                short[owner] = wanted - soon_left
        soon = self._make_way(demand, short)
        for owner in short:
            keeper = QuotaReservation(self._state.experiments[experiment.experiment_id], soon)
            self._quotas.keepers.setdefault(owner, []).append(keeper)

    def _make_way(self, demand: TrialDemand, short: dict[str, int]) -> bool:
        """True if its quota and its slots are being freed: they are already, or gangs give way from now on."""
        if demand.experiment.constraints is not None:
            return all(missing <= 0 for missing in short.values())
        chosen = self._cheapest(demand.experiment, short)
        if chosen is None:
            return False
        going = {item.allocation.allocation_id: slots_coming_back(self._state, self._pool, item.allocation) for item in chosen}
        free, leaving = self._supply.available(), self._supply.leaving
        missing = demand.wanted - free - leaving - sum(going.values())
        if not self._reclaiming.could_free(demand.experiment, missing, set(going)):
            return False
        for owner in sorted(short):
            of_owner = [
                item._replace(freed=going[item.allocation.allocation_id])
                for item in chosen
                if owner in self._owners(item) and item.allocation.allocation_id not in self._decisions.taken
            ]
            if of_owner:
                why = {"quota_of": owner, "quota_slots": self._state.shares[owner].max_slots}
                reasons = [why] * len(of_owner)
                self._decisions.preempt(demand, of_owner, reasons, free=free, leaving=leaving, missing=short[owner])
        for item in chosen:
            self._quotas.frees(self._state.experiments[item.allocation.experiment_id], item.freed)
        # Their slots count as being freed, so that `wait_for` looks only for the rest.
        self._supply.leaving += sum(going.values())
        if self._reclaiming.wait_for(demand, demand.wanted, free):
            self._supply.claimed = True
        return True

    def _cheapest(self, experiment: Experiment, short: dict[str, int]) -> list[Candidate] | None:
        """Cheapest of the owners' own gangs that make up for the missing slots; None: there are not enough."""
        chosen: list[Candidate] = []
        for owner in sorted(short, key=lambda item: (-short[item], item)):
            missing = short[owner] - sum(item.freed for item in chosen if owner in self._owners(item))
            if missing <= 0:
                continue
            have = {item.allocation.allocation_id for item in chosen}
            found = [item for item in self._rules.own_candidates(experiment, owner) if item.allocation.allocation_id not in have]
            more = cheapest(found, missing, self._decisions.now_us)
            if not more:
                return None
            chosen += more
        return chosen

    def _owners(self, candidate: Candidate) -> tuple[str, str]:
        return self._state.experiments[candidate.allocation.experiment_id].owners
