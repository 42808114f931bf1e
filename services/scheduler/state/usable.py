"""Slots of an agent that its pool may use, and those of them that are free or will be."""

from __future__ import annotations

from tenuto.services.scheduler.state import Agent, Allocation, Closed, Pool, State


def closed_slots(state: State, agent_id: str, *, ending: bool) -> Closed | None:
    """Slots of the agent on which nothing new may begin: those that users closed, or all if its time ends. None: it has none."""
    return Closed(agent=True) if ending else state.closed.get(agent_id)


def usable_slots(pool: Pool, agent: Agent) -> tuple[int, ...]:
    """Slots of the agent that new allocations of the pool may take, busy or free."""
    if agent.lost or agent.pool != pool.name or agent.kind != pool.kind:
        return ()
    if agent.closed is not None:
        if agent.closed.agent:
            return ()
        return tuple(slot for slot in agent.slots if slot not in agent.closed.slots)
    return agent.slots


def free_slots(pool: Pool, agent: Agent) -> tuple[int, ...]:
    if not agent.used:
        return usable_slots(pool, agent)
    busy = {slot for slot, _ in agent.used}
    return tuple(slot for slot in usable_slots(pool, agent) if slot not in busy)


def slots_coming_back(state: State, pool: Pool, allocation: Allocation) -> int:
    """Slots that the pool can use again once the allocation is released: not those of lost or closed agents."""
    usable = {agent_id: usable_slots(pool, state.agents[agent_id]) for agent_id, _ in allocation.given_up}
    return sum([slot in usable[agent_id] for agent_id, slot_ids in allocation.given_up for slot in slot_ids])
