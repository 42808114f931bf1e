"""Messages between an agent and the gateway when a machine joins the cluster."""

from __future__ import annotations

import hashlib

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.names import AGENT_NAME_PATTERN

TOKEN_ID_PATTERN = r"^jt-[0-9a-f]{12}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
USES_MAX = 10_000
"""Most agents that join by one token: a large cluster's machines."""
SECRET_PATTERN = r"^[A-Za-z0-9_-]{43}$"
"""256 random bits in base64: a shorter secret could be guessed."""


class JoinBody(Model):
    token_id: str = Field(pattern=TOKEN_ID_PATTERN)
    secret: str = Field(pattern=SECRET_PATTERN)
    """Secret of the join token."""
    agent_id: str = Field(pattern=AGENT_NAME_PATTERN)
    """Name that the agent wants."""
    password: str = Field(pattern=SECRET_PATTERN)
    """The agent's own from now on, made by the agent: 32 random bytes. The same request again changes nothing more, so an
    answer that was lost is asked for again."""


class JoinedView(Model):
    agent_id: str
    pool: str
    nats_url: str
    """Address of the bus."""
    nats_ca: str = ""
    """Certificate (PEM) that the bus's own is checked by. Empty: the machine's own authorities, or no TLS."""


class StandingBody(Model):
    agent_id: str = Field(pattern=AGENT_NAME_PATTERN)
    credential_hash: str = Field(pattern=SHA256_PATTERN)
    """SHA-256 of the agent's password."""


class StandingView(Model):
    joined: bool
    """False: the cluster knows no such agent with this password, because it was revoked or never joined."""


def hash_of(secret: str) -> str:
    """A plain hash is enough for 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()
