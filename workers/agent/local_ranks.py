"""The part of an assignment that is on one agent: its slots and ranks. Pure."""

from __future__ import annotations

from tenuto.schemas.assignments import Assignment


def is_gang(assignment: Assignment) -> bool:
    """True if the trial trains on several slots, so that a supervisor starts one process for each."""
    return sum(len(part.slot_ids) for part in assignment.slots) > 1


def slots_on(assignment: Assignment, agent_id: str) -> tuple[int, ...]:
    return tuple(slot_id for part in assignment.slots if part.agent_id == agent_id for slot_id in part.slot_ids)


def ranks_on(assignment: Assignment, agent_id: str) -> range:
    """Ranks on this agent: one per slot of the gang, in the order of the slots."""
    first = 0
    for part in assignment.slots:
        if part.agent_id == agent_id:
            return range(first, first + len(part.slot_ids))
        first += len(part.slot_ids)
    return range(0)


def rank_on(assignment: Assignment, agent_id: str) -> int:
    """First of this agent's ranks."""
    return ranks_on(assignment, agent_id).start
