"""Agents that the launcher does not take: revoked ones, those of nodes that have ended or failed, and those that offer slots to
another pool than they joined for. Pure."""

from __future__ import annotations

from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import node_has_ended, pool_and_number


def refusal(state: State, agent_id: str, pool: str) -> str:
    """Reason why an agent with this offer is not accepted, in one sentence; empty: it is accepted."""
    if state.pools and (ended := _ended_node(state, agent_id)):
        return ended
    joined_for = state.members.get(agent_id)
    if joined_for is None or joined_for == pool:
        return ""
    if not joined_for:
        return f"Agent {agent_id} was revoked; it comes back only by a join token (`tenuto agent token`)."
    return f"Agent {agent_id} joined for pool {joined_for} and may not offer slots to pool {pool}: set TENUTO_POOL={joined_for}."


def _ended_node(state: State, agent_id: str) -> str:
    """A node is used once. One that is given back serves on for what runs there, and does not come back when it was lost."""
    if node_has_ended(state.pools, agent_id):
        return f"Node {agent_id} has ended, and its name is not used again."
    pool = state.pools.get(pool_and_number(agent_id)[0])
    node = pool.nodes.get(agent_id) if pool is not None else None
    if node is None or not node.ending or (node.ending == "released" and agent_id in state.agents):
        return ""
    what = "has failed" if node.ending == "failed" else "was given back"
    return f"Node {agent_id} {what}, and its agent is not taken any more."
