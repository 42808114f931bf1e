"""Quotas of workspaces and users that hold back a gang: what is left of them is kept for it.

A gang that its owner's quota keeps back, though it would fit in, is not overtaken by that owner's later ones: otherwise small
trials would use the quota for ever. Where the policy preempts, it takes the cheapest of the owner's own less urgent trials
that suffice, if it then gets its slots, too. Until it can, those that it could preempt may use the quota.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tenuto.schemas.sentences.waiting import Limit, Waiting
from tenuto.services.scheduler.policies.combined import Combined
from tenuto.services.scheduler.policies.placement import for_trial
from tenuto.services.scheduler.policies.planner import Outcome
from tenuto.services.scheduler.policies.victims import Candidate, cheapest
from tenuto.services.scheduler.state import Experiment, Pool, State
from tenuto.services.scheduler.state.usable import slots_coming_back


class Keeper(NamedTuple):
    """A gang for which an owner's quota is kept."""

    experiment: Experiment
    soon: bool
    """What it needs of the quota is being freed."""


class Quotas(Combined):
    def __init__(self, state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> None:
        super().__init__(state, pool, now_us, notes)
        self._keepers: dict[str, list[Keeper]] = {}
        """By owner, at most one of each priority: those behind it need no other."""
        self._promised: dict[str, int] = {}
        """Owner -> slots that are being freed for its gangs, as was decided in this pass."""
        self._freed: dict[str, int] | None = None
        self._for_quota = ""
        """The owner for whose quota gangs are preempted now."""

    # What a policy says.

    def own_candidates(self, experiment: Experiment, owner: str) -> Sequence[Candidate]:
        """The owner's running gangs that may be preempted to make room in its quota; `freed`: their slots in the quota."""
        return ()

    def gives_quota_back(self, experiment: Experiment, keeper: Experiment) -> bool:
        """Whether the keeper could preempt what the experiment starts."""
        return False

    # What is left.

    def serve(self, experiment: Experiment, number: int, used: int) -> Outcome:
        outcome = super().serve(experiment, number, used)
        if outcome == "soon" and self.state.shares:
            for owner in experiment.owners:
                self._promised[owner] = self._promised.get(owner, 0) + self.size
        return outcome

    def _unpromised(self, owner: str) -> int | None:
        left = super().quota_left(owner)
        return None if left is None else left - self._promised.get(owner, 0)

    def quota_left(self, owner: str, experiment: Experiment | None = None) -> int | None:
        left = self._unpromised(owner)
        if left is None or owner not in self._keepers:
            return left
        return min(left, self._left_soon(owner, left, experiment))

    def _left_soon(self, owner: str, left: int, experiment: Experiment | None) -> int:
        """What will be left, beside what is kept, once those that leave have left."""
        kept = sum(
            keeper.experiment.slots_per_trial
            for keeper in self._keepers.get(owner, ())
            if experiment is None or keeper.soon or not self.gives_quota_back(experiment, keeper.experiment)
        )
        return left + self._being_freed(owner) - kept

    def over_limit(self, experiment: Experiment, used: int) -> bool:
        for owner in experiment.owners if self._keepers else ():
            whole, left = self._unpromised(owner), self.quota_left(owner, experiment)
            if whole is not None and left is not None and left < experiment.slots_per_trial <= whole:
                ahead = self._keepers[owner][0].experiment
                kept = {"ahead_experiment": ahead.experiment_id, "slots_wanted_ahead": ahead.slots_per_trial}
                self.note(experiment, Limit(owner=owner.replace("/", " ", 1), **kept))
                return True
        return super().over_limit(experiment, used)

    def _being_freed(self, owner: str) -> int:
        """Slots of the owner's gangs that leave, in all pools."""
        if self._freed is None:
            self._freed = {}
            for name in sorted(self.state.pools):
                for item in self.state.pools[name].leaving:
                    allocation = self.state.allocations[item]
                    self._free(self.state.experiments[allocation.experiment_id], sum(len(ids) for _, ids in allocation.given_up))
        return self._freed.get(owner, 0)

    def _free(self, experiment: Experiment, slots: int) -> None:
        assert self._freed is not None
        for owner in experiment.owners:
            self._freed[owner] = self._freed.get(owner, 0) + slots

    # A gang that is kept back.

    def kept_back(self, experiment: Experiment, number: int, used: int) -> None:
        """It is the next one, and may not start because of a limit. Nothing is kept for one that could never start."""
        wanted = experiment.slots_per_trial
        if experiment.max_slots is not None and used + wanted > experiment.max_slots:
            return
        if not self.state.shares or wanted > self.pool.capacity:
            return
        asked = for_trial(experiment, number)
        if asked.constraints is not None and not self.ground.rooms(asked.constraints, wanted):
            return
        short: dict[str, int] = {}
        for owner in experiment.owners:
            share, whole = self.state.shares.get(owner), self._unpromised(owner)
            if share is None or share.max_slots is None or whole is None:
                continue
            if share.max_slots < wanted or any(
                item.experiment.priority == experiment.priority for item in self._keepers.get(owner, ())
            ):
                return
            soon_left = self._left_soon(owner, whole, experiment)
            if wanted > min(whole, soon_left):
                short[owner] = wanted - soon_left
        soon = self._make_way(asked, number, short)
        for owner in short:
            self._keepers.setdefault(owner, []).append(Keeper(experiment, soon))

    def _make_way(self, experiment: Experiment, number: int, short: dict[str, int]) -> bool:
        """Whether its quota and its slots are being freed: they are already, or gangs give way from now on."""
        if experiment.constraints is not None:
            return all(missing <= 0 for missing in short.values())
        chosen = self._owners_cheapest(experiment, short)
        if chosen is None:
            return False
        going = {item.allocation.allocation_id: slots_coming_back(self.state, self.pool, item.allocation) for item in chosen}
        wanted, free, leaving = experiment.slots_per_trial, self.available(), self.leaving
        self.taken.update(going)
        missing = wanted - free - leaving - sum(going.values())
        others = missing <= 0 or bool(self.victims_for(experiment, missing, None, None))
        suffices = others or sum(item.freed for item in self.shrinkable(experiment)) >= missing
        self.taken.difference_update(going)
        if not suffices:
            return False
        for owner in sorted(short):
            of_owner = [
                item for item in chosen if owner in self._owners(item) and item.allocation.allocation_id not in self.taken
            ]
            if of_owner:
                self._for_quota = owner
                victims = [item._replace(freed=going[item.allocation.allocation_id]) for item in of_owner]
                self.preempt(experiment, number, victims, free, leaving, short[owner])
                self._for_quota = ""
        for item in chosen:
            self._free(self.state.experiments[item.allocation.experiment_id], item.freed)
        self.leaving += sum(going.values())
        if self._wait_for(experiment, number, wanted, free):
            self.claimed = self.blocked = True
        return True

    def _owners_cheapest(self, experiment: Experiment, short: dict[str, int]) -> list[Candidate] | None:
        """The cheapest that make up for what is short; None: there are not enough."""
        chosen: list[Candidate] = []
        for owner in sorted(short, key=lambda item: (-short[item], item)):
            missing = short[owner] - sum(item.freed for item in chosen if owner in self._owners(item))
            if missing <= 0:
                continue
            have = {item.allocation.allocation_id for item in chosen}
            found = [item for item in self.own_candidates(experiment, owner) if item.allocation.allocation_id not in have]
            more = cheapest(found, missing, self.now_us)
            if not more:
                return None
            chosen += more
        return chosen

    def _owners(self, candidate: Candidate) -> tuple[str, str]:
        return self.state.experiments[candidate.allocation.experiment_id].owners

    def why_preempted(self, experiment: Experiment, number: int, victim: Candidate) -> dict[str, Any]:
        share = self.state.shares.get(self._for_quota)
        if share is None or share.max_slots is None:
            return super().why_preempted(experiment, number, victim)
        return {"quota_of": self._for_quota, "quota_slots": share.max_slots}
