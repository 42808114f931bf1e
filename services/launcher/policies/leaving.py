"""Agents that have said that they end. Pure."""

from __future__ import annotations

from tenuto.services.launcher.state import State


def says_it_ends(state: State, agent_id: str) -> bool:
    """True if it is on record that the agent ends: what it runs leaves now, or nothing new begins there and it has no work,
    whereupon it ends at once."""
    agent = state.agents.get(agent_id)
    return agent is not None and (agent.leaving == "now" or (agent.leaving == "soon" and agent_id not in state.on_agent))
