"""Parts of a change of a trial's size: the slots that it gives up, those that it goes on with, and the event."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from tenuto.schemas.events.pool import AgentSlots, AllocationResized
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.ids import trial_id
from tenuto.services.scheduler.policies.placement import Room
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State
from tenuto.services.scheduler.state.slotsets import SlotSet, count
from tenuto.services.scheduler.state.usable import usable_slots


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


def smaller(slots: SlotSet, dropped: Iterable[tuple[str, int]]) -> SlotSet:
    gone = set(dropped)
    left = ((agent_id, tuple(slot for slot in slot_ids if (agent_id, slot) not in gone)) for agent_id, slot_ids in slots)
    return tuple(part for part in left if part[1])


def merged(slots: SlotSet, more: Iterable[AgentSlots]) -> SlotSet:
    """Agents that it had come first, so that ranks stay where they were."""
    together = {agent_id: list(slot_ids) for agent_id, slot_ids in slots}
    for part in more:
        together.setdefault(part.agent_id, []).extend(part.slot_ids)
    return tuple((agent_id, tuple(sorted(slot_ids))) for agent_id, slot_ids in together.items())


def parts_of(slots: SlotSet) -> tuple[AgentSlots, ...]:
    return tuple(AgentSlots(agent_id=agent_id, slot_ids=slot_ids) for agent_id, slot_ids in slots)


def resized(allocation: Allocation, slots: SlotSet, reason: Reason) -> AllocationResized:
    return AllocationResized(
        pool=allocation.pool,
        allocation_id=allocation.allocation_id,
        trial_id=trial_id(allocation.experiment_id, allocation.trial_number),
        experiment_id=allocation.experiment_id,
        slots=parts_of(slots),
        reason=reason,
    )


class Growing:
    """A trial that may grow: a running one, or one that is granted slots in this very pass."""

    def __init__(
        self,
        experiment: Experiment,
        number: int,
        slots: SlotSet,
        most: int,
        draft_at: int = -1,
        allocation: Allocation | None = None,
    ) -> None:
        """`draft_at`: of one that is granted slots, the draft that says so. `allocation`: of a running one."""
        self.experiment, self.number, self.slots, self.most = experiment, number, slots, most
        self.draft_at, self.allocation = draft_at, allocation
        self.before = self.size = count(slots)
