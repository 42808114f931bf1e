"""Shrinking and preempting for the same gang, where neither the one nor the other alone gives it its slots, or preempting alone
would take more than it must.

Slots above the least of elastic trials are cheaper than any preemption, so all of them count as given, and the cheapest set
is preempted for what is missing still. An elastic trial in that set gives its slots only once: what preempting it adds is what
it has beyond the slots that it could give up anyway. Then the others shrink, again the cheapest that suffice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenuto.services.scheduler.policies.elastic import Elastic
from tenuto.services.scheduler.policies.placement import Room
from tenuto.services.scheduler.policies.victims import Candidate, cheapest
from tenuto.services.scheduler.state import Experiment


class Combined(Elastic):
    def all_candidates(self, experiment: Experiment, missing: int, given: Mapping[str, int]) -> Sequence[Candidate]:
        """Running gangs that may be preempted for it, enough to choose from for `missing` slots where each adds what it frees
        beyond what it gives anyway."""
        return self.candidates(experiment, missing)

    def gains(self, candidates: Sequence[Candidate], given: Mapping[str, int]) -> list[int]:
        """Slots that each adds beside all that elastic trials give. `given`: allocation -> slots that it can give up."""
        return [candidate.freed - given.get(candidate.allocation.allocation_id, 0) for candidate in candidates]

    def victims_for(
        self, experiment: Experiment, missing: int, inside: Sequence[Candidate] | None, room: Room | None
    ) -> list[Candidate]:
        given = {item.allocation.allocation_id: item.freed for item in self.shrinkable(experiment, room)}
        total = sum(given.values())
        if not 0 < total < missing:
            return super().victims_for(experiment, missing, inside, room)
        found = self.all_candidates(experiment, missing - total, given) if inside is None else inside
        adding = [(candidate, gain) for candidate, gain in zip(found, self.gains(found, given), strict=True) if gain > 0]
        chosen = cheapest([candidate._replace(freed=gain) for candidate, gain in adding], missing - total, self.now_us)
        freed = {candidate.allocation.allocation_id: candidate.freed for candidate in found}
        victims = [candidate._replace(freed=freed[candidate.allocation.allocation_id]) for candidate in chosen]
        if victims and self._suffice(experiment, missing, victims, room):
            return victims
        return super().victims_for(experiment, missing, inside, room)

    def _suffice(self, experiment: Experiment, missing: int, victims: Sequence[Candidate], room: Room | None) -> bool:
        """Whether the others give the rest, once these are gone: some policies bound what an experiment may lose in all."""
        items = {victim.allocation.allocation_id for victim in victims}
        self.taken |= items
        rest = sum(item.freed for item in self.shrinkable(experiment, room))
        self.taken -= items
        return rest + sum(victim.freed for victim in victims) >= missing
