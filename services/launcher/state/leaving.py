"""Agents that have said that they end, and workers that were asked to leave. Pure."""

from __future__ import annotations

from tenuto.services.launcher.state import Allocation, State, Trial


def says_it_ends(state: State, agent_id: str) -> bool:
    """True if it is on record that the agent ends: what it runs leaves now, or nothing new begins there and it has no work,
    whereupon it ends at once."""
    agent = state.agents.get(agent_id)
    return agent is not None and (agent.leaving == "now" or (agent.leaving == "soon" and agent_id not in state.on_agent))


def was_asked(trial: Trial, allocation: Allocation) -> bool:
    """True if the scheduler or the search had asked these workers to leave."""
    return allocation.preempted or trial.phase != "wanted"
