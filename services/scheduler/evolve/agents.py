"""Folds changes of agents and their slots."""

from __future__ import annotations

from dataclasses import replace

from tenuto.schemas.events import agent as agents
from tenuto.services.scheduler.state import Agent, Constraints, State, allocations, indexes
from tenuto.services.scheduler.state.usable import closed_slots


def joined(state: State, data: agents.AgentJoined) -> State:
    old = state.agents.get(data.agent_id)
    kind = "cuda" if any(slot.kind == "cuda" for slot in data.slots) else "cpu"
    ending = bool(data.leaving) or data.agent_id in state.nodes_ending
    joined = Agent(
        agent_id=data.agent_id,
        pool=data.pool,
        kind=kind,
        slots=tuple(sorted({slot.slot_id for slot in data.slots if slot.kind == kind})),
        labels=tuple(sorted((*data.labels, *([agents.IMAGES_LABEL] if data.runs_images else [])))),
        devices=tuple(sorted({slot.device.lower() for slot in data.slots if slot.kind == kind})),
        closed=closed_slots(state, data.agent_id, ending=ending),
        ending=ending,
        used=old.used if old else (),
        auxiliary_max=data.auxiliary_trials_max,
        auxiliary=old.auxiliary if old else (),
        image=data.image,
    )
    return indexes.put_agent(_told_apart(state, data.pool) if data.image else state, joined)


def _told_apart(state: State, pool: str) -> State:
    """State in which no experiment takes the pool's agents for alike: without constraints it would run in another's image."""
    if pool in state.image_pools:
        return state
    for number in sorted(state.experiments):
        experiment = state.experiments[number]
        if experiment.constraints is None and pool in (experiment.pool, *experiment.fallback_pools):
            state = indexes.change_experiment(state, number, constraints=Constraints())
    return replace(state, image_pools=state.image_pools.set(pool, True))


def lost(state: State, data: agents.AgentLost) -> State:
    agent = state.agents.get(data.agent_id)
    if agent is None or agent.lost:
        return state
    state = indexes.put_agent(state, replace(agent, lost=True))
    for allocation_id in sorted({*(allocation_id for _, allocation_id in agent.used), *agent.auxiliary}):
        state = allocations.leave(state, allocation_id, "agent_lost")
    return state
