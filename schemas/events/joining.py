"""Events of machines that join the cluster as agents. Owner: gateway. Stream: request/cluster."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.events.registry import event
from tenuto.schemas.events.request import ClusterRequest, TokenLabel
from tenuto.schemas.joining import SHA256_PATTERN, TOKEN_ID_PATTERN, USES_MAX
from tenuto.schemas.names import AGENT_NAME_PATTERN, NAME_PATTERN


@event("JoinTokenCreated")
class JoinTokenCreated(ClusterRequest):
    """A join token was created; its bearer may join machines to a pool as agents."""

    token_id: str = Field(pattern=TOKEN_ID_PATTERN)
    secret_hash: str = Field(pattern=SHA256_PATTERN)
    """SHA-256 of the token's secret. The secret itself is stored nowhere."""
    pool: str = Field(pattern=NAME_PATTERN)
    """Pool that its agents offer their slots to, and no other."""
    expires_us: int = Field(ge=0)
    """End of the token's validity, in microseconds since 1970. Agents that joined by it stay."""
    uses_max: int = Field(ge=1, le=USES_MAX)
    """Most agents that join by it."""
    label: TokenLabel = ""
    """Purpose of the token, in the user's words."""
    agent_id: str = Field(default="", pattern=rf"^$|{AGENT_NAME_PATTERN}", exclude_if=lambda value: not value)
    """Only this agent joins by it: the one of a node that a provisioner starts. Empty: any."""


@event("JoinTokenRevoked")
class JoinTokenRevoked(ClusterRequest):
    """No more agents join by the token. Those that did stay."""

    token_id: str = Field(pattern=TOKEN_ID_PATTERN)


@event("AgentEnrolled")
class AgentEnrolled(ClusterRequest):
    """The agent has credentials of its own on the bus: it showed a join token."""

    agent_id: str = Field(pattern=AGENT_NAME_PATTERN)
    pool: str = Field(pattern=NAME_PATTERN)
    """Pool that the agent offers its slots to, and no other."""
    token_id: str = Field(pattern=TOKEN_ID_PATTERN)
    """Token by which it joined."""
    credential_hash: str = Field(pattern=SHA256_PATTERN)
    """SHA-256 of the agent's password, which has 256 random bits: enough to recognise it, not to find it."""


@event("AgentRevoked")
class AgentRevoked(ClusterRequest):
    """The agent has no credentials any more, and what it runs is lost. Its name comes back only by a join token."""

    agent_id: str = Field(pattern=AGENT_NAME_PATTERN)
