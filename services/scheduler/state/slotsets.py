"""Sets of slots, as agents and their slots."""

from __future__ import annotations

SlotSet = tuple[tuple[str, tuple[int, ...]], ...]
"""(agent, its slots)."""


def count(slots: SlotSet) -> int:
    if len(slots) == 1:  # as nearly always
        return len(slots[0][1])
    return sum([len(slot_ids) for _, slot_ids in slots])


def without(slots: SlotSet, others: SlotSet) -> SlotSet:
    """The slots that are not among the others; no agent is left without slots."""
    taken = {(agent_id, slot) for agent_id, slot_ids in others for slot in slot_ids}
    left = ((agent_id, tuple(slot for slot in slot_ids if (agent_id, slot) not in taken)) for agent_id, slot_ids in slots)
    return tuple(part for part in left if part[1])
