"""Sets of slots, as agents and their slots."""

from __future__ import annotations

from collections.abc import Iterable

SlotSet = tuple[tuple[str, tuple[int, ...]], ...]
"""(agent, its slots)."""


def count(slots: SlotSet) -> int:
    if len(slots) == 1:  # as nearly always
        return len(slots[0][1])
    return sum([len(slot_ids) for _, slot_ids in slots])


def without(slots: SlotSet, others: SlotSet) -> SlotSet:
    """The slots that are not among the others."""
    return smaller(slots, ((agent_id, slot) for agent_id, slot_ids in others for slot in slot_ids))


def smaller(slots: SlotSet, dropped: Iterable[tuple[str, int]]) -> SlotSet:
    """`slots` less the dropped ones, each an agent and its slot; no agent is left without slots."""
    gone = set(dropped)
    left = ((agent_id, tuple(slot for slot in slot_ids if (agent_id, slot) not in gone)) for agent_id, slot_ids in slots)
    return tuple(part for part in left if part[1])


def merged(slots: SlotSet, more: SlotSet) -> SlotSet:
    """Both together. Agents of the first come first, so that ranks stay where they were."""
    together = {agent_id: list(slot_ids) for agent_id, slot_ids in slots}
    for agent_id, slot_ids in more:
        together.setdefault(agent_id, []).extend(slot_ids)
    return tuple((agent_id, tuple(sorted(slot_ids))) for agent_id, slot_ids in together.items())
