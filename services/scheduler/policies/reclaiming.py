"""Slots for a gang that does not fit: those that are being freed, those of elastic trials that shrink, else those of the cheapest
set of gangs that may be preempted for it.

Neither may suffice alone, or preempting alone may take more than it must. Slots above the least of elastic trials are cheaper
than any preemption, so all of them count as given, and the cheapest set is preempted for what is missing still. An elastic trial
in that set gives its slots only once: what preempting it adds is what it has beyond the slots that it could give up anyway. Then
the others shrink, again the cheapest that suffice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.schemas.sentences.waiting import Soon
from tenuto.services.scheduler.policies.decisions import TrialDemand
from tenuto.services.scheduler.policies.placement import Room
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.shrinking import Shrinking
from tenuto.services.scheduler.policies.victims import Candidate, cheapest
from tenuto.services.scheduler.state import Experiment
from tenuto.services.scheduler.state.usable import usable_slots


class Reclaiming:
    def __init__(self, rules: PolicyRules, shrinking: Shrinking) -> None:
        self._rules, self._shrinking = rules, shrinking
        self._decisions, self._supply, self._state, self._pool = rules.decisions, rules.supply, rules.state, rules.pool

    def wait_for(self, demand: TrialDemand, wanted: int, free: int) -> bool:
        """True if `wanted` slots are being freed for a gang that any slots will do for: they are already, or other gangs give way
        from now on. `free`: number of them that are free."""
        experiment, supply = demand.experiment, self._supply
        missing = wanted - free - supply.leaving
        if missing <= 0:
            # The rest of what is being freed is left to the gangs behind.
            supply.leaving = -missing
            self._decisions.note(experiment, Soon(**gang(experiment), slots_free=free))
            return True
        if freed := self._shrinking.shrink_for(experiment, missing):
            # All that was being freed before is this gang's, and only the excess is left to others.
            supply.leaving = freed - missing
            return True
        chosen = self.victims_for(experiment, missing)
        if not chosen:
            return False
        self.preempt(demand, chosen, free, supply.leaving, missing)
        freed = sum(victim.freed for victim in chosen)
        supply.leaving = freed + self._shrinking.shrink_for(experiment, missing - freed) - missing
        return True

    def could_free(self, experiment: Experiment, missing: int, going: set[str]) -> bool:
        """True if others could make up what is missing, if those that are `going` leave anyway."""
        # Candidates and surplus leave out what is in `taken`, so the question is asked as if these had left.
        self._decisions.taken |= going
        suffices = missing <= 0 or bool(self.victims_for(experiment, missing))
        suffices = suffices or sum(item.freed for item in self._shrinking.shrinkable(experiment)) >= missing
        self._decisions.taken -= going
        return suffices

    def victims_for(self, experiment: Experiment, missing: int, room: Room | None = None) -> list[Candidate]:
        """Cheapest gangs to preempt for it, only in the room if one is given; where they free less than `missing`, elastic trials
        shrink for the rest."""
        inside = None if room is None else self.candidates_in(experiment, room)
        given = {item.allocation.allocation_id: item.freed for item in self._shrinking.shrinkable(experiment, room)}
        total = sum(given.values())
        # Shrinking and preempting are combined only where shrinking gives something and not enough.
        if 0 < total < missing:
            found = self._rules.candidates(experiment, missing - total, given) if inside is None else inside
            gains = self._rules.gains(found, given)
            adding = [candidate._replace(freed=gain) for candidate, gain in zip(found, gains, strict=True) if gain > 0]
            chosen = cheapest(adding, missing - total, self._decisions.now_us)
            freed = {candidate.allocation.allocation_id: candidate.freed for candidate in found}
            # The gain served only the choice; from here on each counts with all that it frees.
            victims = [candidate._replace(freed=freed[candidate.allocation.allocation_id]) for candidate in chosen]
            if victims and self._suffice(experiment, missing, victims, room):
                return victims
        found = self._rules.candidates(experiment, missing) if inside is None else inside
        return cheapest(found, missing, self._decisions.now_us)

    def _suffice(self, experiment: Experiment, missing: int, victims: Sequence[Candidate], room: Room | None) -> bool:
        """True if the others give the rest, once these are gone: some policies bound what an experiment may lose in all."""
        items = {victim.allocation.allocation_id for victim in victims}
        self._decisions.taken |= items
        rest = sum(item.freed for item in self._shrinking.shrinkable(experiment, room))
        self._decisions.taken -= items
        return rest + sum(victim.freed for victim in victims) >= missing

    def candidates_in(self, experiment: Experiment, room: Room) -> list[Candidate]:
        """Running gangs there that may be preempted for it, even if all of them are."""
        found: dict[str, Candidate] = {}
        for agent_id in room:
            if agent_id in self._supply.held_agents:
                continue
            agent = self._state.agents[agent_id]
            usable = usable_slots(self._pool, agent)
            for slot, item in agent.used:
                allocation = self._state.allocations[item]
                if slot not in usable or allocation.leaving or item in self._decisions.taken:
                    continue
                rank = found[item].rank if item in found else self._rules.rank(experiment, allocation)
                if rank is not None:
                    freed = found[item].freed + 1 if item in found else 1
                    found[item] = Candidate(allocation, freed, rank)
        return self._rules.together([found[item] for item in sorted(found)])

    def preempt(self, demand: TrialDemand, chosen: Sequence[Candidate], free: int, leaving: int, missing: int) -> None:
        """The chosen gangs leave for the demand, of which so many slots are free, being freed and missing."""
        why = [self._rules.why_preempted(demand, victim) for victim in chosen]
        self._decisions.preempt(demand, chosen, why, free=free, leaving=leaving, missing=missing)
