"""Join tokens, and the agents that joined by them or were revoked. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from immutables import Map

from tenuto.schemas.events import EventData
from tenuto.schemas.events.joining import AgentEnrolled, AgentRevoked, JoinTokenCreated, JoinTokenRevoked
from tenuto.schemas.events.node import NodeEnded

TOKENS_MAX = 1_000
"""Valid join tokens at once: more of them are forgotten ones."""
AGENTS_MAX = 100_000
"""Agents that have joined or were revoked, all kept in memory: machines that come and go take a name each."""


@dataclass(frozen=True)
class IssuedJoinToken:
    """A join token that was not revoked."""

    token_id: str
    secret_hash: str
    pool: str
    expires_us: int
    uses_max: int
    created_us: int
    label: str = ""
    uses: int = 0
    """Agents that joined by it."""
    agent_id: str = ""
    """The one agent that may join by it. Empty: any."""

    def fits(self, secret_hash: str) -> bool:
        """The time that a comparison of hashes takes tells nothing of what was hashed."""
        return self.secret_hash == secret_hash


@dataclass(frozen=True)
class Member:
    """An agent that joined by a token, or was revoked, however it had joined."""

    agent_id: str
    pool: str
    token_id: str
    """Empty: it had its credentials from the operator."""
    credential_hash: str
    """Empty: it was revoked."""

    @property
    def revoked(self) -> bool:
        return not self.credential_hash


@dataclass(frozen=True)
class Joining:
    tokens: Map[str, IssuedJoinToken] = field(default_factory=Map)
    """Join tokens by id. Expired ones stay until another is made, so that they can be shown and told from unknown ones."""
    agents: Map[str, Member] = field(default_factory=Map)

    @property
    def revoked(self) -> tuple[str, ...]:
        """Names of agents that were revoked and have not joined again."""
        return tuple(name for name in sorted(self.agents) if self.agents[name].revoked)

    def knows(self, agent_id: str, credential_hash: str) -> bool:
        """True if the agent joined and has this password."""
        member = self.agents.get(agent_id)
        return member is not None and not member.revoked and member.credential_hash == credential_hash


def fold(joining: Joining, data: EventData, time_us: int) -> Joining:
    tokens, agents = joining.tokens, joining.agents
    match data:
        case JoinTokenCreated():
            for token_id in sorted(tokens):
                if tokens[token_id].expires_us <= time_us:
                    tokens = tokens.delete(token_id)
                elif data.agent_id and tokens[token_id].agent_id == data.agent_id:
                    tokens = tokens.delete(token_id)  # of an order that may have been lost; only the newest is valid
            made = IssuedJoinToken(
                data.token_id, data.secret_hash, data.pool, data.expires_us, data.uses_max, time_us,
                label=data.label, agent_id=data.agent_id,
            )  # fmt: skip
            tokens = tokens.set(data.token_id, made)
        case JoinTokenRevoked() if data.token_id in tokens:
            tokens = tokens.delete(data.token_id)
        case AgentEnrolled():
            agents = agents.set(data.agent_id, Member(data.agent_id, data.pool, data.token_id, data.credential_hash))
            if (used := tokens.get(data.token_id)) is not None:
                spent = used.agent_id == data.agent_id
                tokens = tokens.delete(data.token_id) if spent else tokens.set(data.token_id, replace(used, uses=used.uses + 1))
        case AgentRevoked():
            before = agents.get(data.agent_id)
            pool, token_id = (before.pool, before.token_id) if before is not None else ("", "")
            agents = agents.set(data.agent_id, Member(data.agent_id, pool, token_id, ""))
        case NodeEnded():
            for token_id in [key for key in sorted(tokens) if tokens[key].agent_id == data.node_id]:
                tokens = tokens.delete(token_id)
            if (member := agents.get(data.node_id)) is not None:
                agents = agents.set(data.node_id, replace(member, credential_hash=""))
    return replace(joining, tokens=tokens, agents=agents)


OF_JOINING: tuple[type[EventData], ...] = (JoinTokenCreated, JoinTokenRevoked, AgentEnrolled, AgentRevoked)
"""NodeEnded is folded, too: `cluster/evolve.py` sees to it."""
