"""Machines that join as agents, and agents that are revoked."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.base import from_object
from tenuto.schemas.events import EventData
from tenuto.schemas.events.joining import AgentEnrolled, AgentRevoked, JoinTokenCreated, JoinTokenRevoked
from tenuto.services.gateway.cluster.commands import CreateJoinToken, Enroll, RevokeAgent, RevokeJoinToken
from tenuto.services.gateway.cluster.policies.joining import AGENTS_MAX, TOKENS_MAX, IssuedJoinToken
from tenuto.services.gateway.cluster.state import ClusterState
from tenuto.services.gateway.rights.checks import check_admin

ANOTHER = "ask for another (`tenuto agent token`)"


def create_token(state: ClusterState, command: CreateJoinToken) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    tokens = state.joining.tokens
    valid = [key for key in sorted(tokens) if tokens[key].expires_us > command.time_us and not tokens[key].agent_id]
    if len(valid) >= TOKENS_MAX:
        raise Refused(
            f"There are {TOKENS_MAX} join tokens, and no more are kept; revoke some (`tenuto agent tokens`).", "conflict"
        )
    return [from_object(JoinTokenCreated, command, agent_id="")]


def revoke_token(state: ClusterState, command: RevokeJoinToken) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    if command.token_id not in state.joining.tokens:
        raise Refused(f"There is no join token {command.token_id}; `tenuto agent tokens` lists them.", "not_found")
    return [JoinTokenRevoked(token_id=command.token_id)]


def enroll(state: ClusterState, command: Enroll) -> Sequence[EventData]:
    """Events of an agent that joins. Raises Refused; only a caller who shows the token's secret is told what is wrong with the
    token."""
    joining = state.joining
    token = joining.tokens.get(command.token_id)
    if token is None or not token.fits(command.secret_hash):
        raise Refused(f"This join token is not valid, has expired, or was revoked: {ANOTHER}.", "unauthorized")
    if joining.knows(command.agent_id, command.credential_hash):
        return []  # asked again, because the answer was lost
    if token.agent_id not in ("", command.agent_id):
        raise Refused(f"Join token {token.token_id} is for agent {token.agent_id} only: {ANOTHER}.", "forbidden")
    _check_usable(token, command.time_us)
    member = joining.agents.get(command.agent_id)
    if command.taken or (member is not None and not member.revoked):
        raise name_taken(command.agent_id)
    if member is None and len(joining.agents) >= AGENTS_MAX:
        raise Refused(
            f"{AGENTS_MAX} agents have joined, and no more are known: give this one the name of one that left.", "conflict"
        )
    return [from_object(AgentEnrolled, command, pool=token.pool)]


def name_taken(agent_id: str) -> Refused:
    return Refused(
        f"An agent named {agent_id} has joined already: choose another name with --name, or revoke that one first "
        f"(`tenuto agent revoke {agent_id}`).",
        "exists",
    )


def revoke_agent(state: ClusterState, command: RevokeAgent) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    member = state.joining.agents.get(command.agent_id)
    if not command.has_credentials and (member is None or member.revoked):
        raise Refused(f"No agent named {command.agent_id} has credentials; `tenuto agent ls` shows the agents.", "not_found")
    return [AgentRevoked(agent_id=command.agent_id)]


def _check_usable(token: IssuedJoinToken, time_us: int) -> None:
    """Raises Refused."""
    if time_us >= token.expires_us:
        raise Refused(f"Join token {token.token_id} has expired: {ANOTHER}.", "expired")
    if token.uses >= token.uses_max:
        agents = "1 agent" if token.uses_max == 1 else f"{token.uses_max} agents"
        raise Refused(f"Join token {token.token_id} is used up, by {agents}: {ANOTHER}.", "expired")


DECISIONS = decisions(create_token, revoke_token, enroll, revoke_agent)
