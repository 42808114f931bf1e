"""Elastic trials give up slots that others need.

What a trial has above its least is given up before anything that runs is preempted; whose, the policy says. A change is one
event, AllocationResized: the workers save and leave, and the trial is granted its new slots as soon as they have. One that is
leaving to change its size can be changed again for nothing.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tenuto.schemas.sentences.released_slots import Shrinks
from tenuto.schemas.sentences.waiting import Preempting
from tenuto.services.scheduler.policies.placement import Room
from tenuto.services.scheduler.policies.reasons import ResizedNumbers, gang
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.supply import OnAgents
from tenuto.services.scheduler.policies.victims import Candidate, cheapest
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State
from tenuto.services.scheduler.state.slotsets import SlotSet, count, smaller
from tenuto.services.scheduler.state.usable import usable_slots


class Shrinking:
    def __init__(self, rules: PolicyRules) -> None:
        self._rules, self._decisions, self._supply = rules, rules.decisions, rules.supply
        self._state, self._pool = rules.state, rules.pool

    def shrinkable(self, experiment: Experiment, room: Room | None = None) -> list[Candidate]:
        """Elastic trials with the slots that each can give up for this experiment, of these agents only if a room is given."""
        found: list[Candidate] = []
        for allocation, most in self._rules.spare(experiment) if self._pool.elastic else ():
            freed = min(most, len(self._droppable(allocation, room))) if most > 0 else 0
            if freed > 0:
                found.append(Candidate(allocation, freed, 0))
        return found

    def shrinkable_on(self, experiment: Experiment) -> OnAgents:
        """Slots that elastic trials could give up for it at most, by agent."""
        found: OnAgents = []
        for allocation, most in self._rules.spare(experiment) if self._pool.elastic else ():
            on: dict[str, int] = {}
            slots = self._decisions.slots_soon(allocation)
            for agent_id, _ in droppable(self._state, self._pool, slots) if most > 0 else ():
                on[agent_id] = on.get(agent_id, 0) + 1
            found += [(agent_id, min(count, most)) for agent_id, count in on.items()]
        return found

    def shrink_for(self, experiment: Experiment, missing: int, room: Room | None = None) -> int:
        """Slots that elastic trials give up for it from now on, the cheapest that suffice, of these agents only if a room is
        given: `missing`, or 0."""
        if not self._pool.elastic or missing <= 0:
            return 0
        chosen = cheapest(self.shrinkable(experiment, room), missing, self._decisions.now_us)
        over = sum(item.freed for item in chosen) - missing
        for candidate in sorted(chosen, key=lambda item: -item.freed):
            # No set is larger than it must be, so one of them alone frees more than is over.
            less, over = (over, 0) if candidate.freed > over else (0, over)
            self.shrink(candidate.allocation, candidate.freed - less, experiment, missing, room)
        if chosen:
            self._decisions.note(experiment, Preempting(**gang(experiment), victims=len(chosen), shrink=True))
        return missing if chosen else 0

    def shrink_inside(self, experiment: Experiment) -> None:
        """Let the experiment's larger trials give up slots for its own waiting ones, the largest first."""
        if not experiment.elastic or not experiment.waiting or not self._pool.elastic:
            return
        own = [self._state.allocations[item] for item in experiment.allocations if item in self._pool.elastic]
        freeing = experiment.slots_used - sum(count(self._decisions.slots_soon(allocation)) for allocation in own)
        wanted = experiment.slots_per_trial * len(experiment.waiting) - freeing
        surplus = {allocation.allocation_id: self._decisions.surplus(allocation) for allocation in own}
        # Less than one gang would start no trial, and each change costs a checkpoint and a start.
        if sum(surplus.values()) + freeing < experiment.slots_per_trial:
            return
        give: dict[str, int] = {}
        for _ in range(wanted):
            most, item = max(((left - give.get(item, 0), item) for item, left in surplus.items()), default=(0, ""))
            if most <= 0:
                break
            give[item] = give.get(item, 0) + 1
        for item in sorted(give):
            self.shrink(self._state.allocations[item], give[item], experiment, wanted)

    def shrink(self, allocation: Allocation, slots: int, wanted_by: Experiment, missing: int, room: Room | None = None) -> None:
        """Decides that the allocation's trial goes on with this number of slots less."""
        now = self._decisions.slots_soon(allocation)
        left = smaller(now, self._droppable(allocation, room)[:slots])
        if left == now:
            return
        why = Shrinks(
            **self.sizes(allocation, left),
            wanted_by_experiment=wanted_by.experiment_id,
            slots_missing=missing,
            **self._rules.compared(wanted_by, self._state.experiments[allocation.experiment_id]),
        )
        self._decisions.resize(allocation, left, why.reason(f"{self._decisions.policy}.shrinks"))

    def sizes(self, allocation: Allocation, slots: SlotSet) -> ResizedNumbers:
        """Sizes of an allocation that goes on with these slots."""
        experiment, soon = self._state.experiments[allocation.experiment_id], count(self._decisions.slots_soon(allocation))
        return {
            "slots_from": allocation.size,
            "slots_soon": None if soon == allocation.size else soon,
            "slots_to": count(slots),
            "slots_min": experiment.slots_per_trial,
            "slots_max": experiment.slots_most,
        }

    def _droppable(self, allocation: Allocation, room: Room | None) -> OnAgents:
        """(agent, slot) that it can give up and that no gang ahead would take."""
        return droppable(self._state, self._pool, self._decisions.slots_soon(allocation), room, self._supply.held_agents)


def droppable(
    state: State, pool: Pool, slots: SlotSet, room: Room | None = None, held: AbstractSet[str] = frozenset()
) -> list[tuple[str, int]]:
    """Slots that can be given up and used by others, in the order in which it costs the gang least: those on agents where it has
    the fewest, so that it stays together. `held`: agents whose slots others wait for."""
    found: list[tuple[int, str, int]] = []
    for agent_id, slot_ids in slots:
        if agent_id in held or (room is not None and agent_id not in room):
            continue
        agent = state.agents.get(agent_id)
        usable = usable_slots(pool, agent) if agent else ()
        found += [(len(slot_ids), agent_id, slot) for slot in slot_ids if slot in usable]
    found.sort(key=lambda item: (item[0], item[1], -item[2]))
    return [(agent_id, slot) for _, agent_id, slot in found]
