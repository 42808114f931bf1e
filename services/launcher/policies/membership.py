"""Agents that the launcher does not take: revoked ones, and those that offer slots to another pool than they joined for. Pure."""

from __future__ import annotations

from tenuto.services.launcher.state import State


def refusal(state: State, agent_id: str, pool: str) -> str:
    """Why an agent with this offer is not taken, in one sentence; empty: it is."""
    joined_for = state.members.get(agent_id)
    if joined_for is None or joined_for == pool:
        return ""
    if not joined_for:
        return f"Agent {agent_id} was revoked; it comes back only by a join token (`tenuto agent token`)."
    return f"Agent {agent_id} joined for pool {joined_for} and may not offer slots to pool {pool}: set TENUTO_POOL={joined_for}."
