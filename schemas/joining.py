"""What an agent and the gateway say to each other when a machine joins the cluster."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Self

from pydantic import Field, ValidationError

from tenuto.schemas.base import Model

TOKEN_ID_PATTERN = r"^jt-[0-9a-f]{12}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
AGENT_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
USES_MAX = 10_000
"""Most agents that join by one token: a large cluster's machines."""
SECRET_CHARACTERS = 43
"""Of a secret of 256 random bits in base64. A shorter one could be guessed."""
SECRET_PATTERN = r"^[A-Za-z0-9_-]{43}$"
TOKEN_PREFIX = "tenuto-join-"
"""By it people and secret scanners recognise a join token."""
TOKEN_CHARACTERS_MAX = 4_096


class BadJoinToken(ValueError):
    """`str(error)` says why and what to do."""


class JoinToken(Model):
    """What one string carries to the machine that joins."""

    url: str = Field(pattern=r"^https?://[^\s]+$", max_length=2_048)
    """Address of the gateway."""
    fingerprint: str = Field(default="", pattern=r"^([0-9a-f]{64})?$", exclude_if=lambda value: not value)
    """SHA-256 of the gateway's TLS certificate, if that is self-made. Empty: the machine's own authorities are asked."""
    id: str = Field(pattern=TOKEN_ID_PATTERN)
    secret: str = Field(pattern=SECRET_PATTERN)

    def __repr__(self) -> str:
        return f"JoinToken({self.id})"

    __str__ = __repr__

    def written(self) -> str:
        return TOKEN_PREFIX + base64.urlsafe_b64encode(self.to_json()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises BadJoinToken."""
        text = text.strip()
        if not text.startswith(TOKEN_PREFIX) or len(text) > TOKEN_CHARACTERS_MAX:
            raise BadJoinToken(
                f"This is no join token: one begins with {TOKEN_PREFIX}, and `tenuto agent token` on the cluster makes one."
            )
        body = text.removeprefix(TOKEN_PREFIX)
        try:
            return cls.from_json(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValidationError, ValueError, binascii.Error):
            raise BadJoinToken(
                "The join token cannot be read: copy it whole, or make another with `tenuto agent token`."
            ) from None


class JoinBody(Model):
    token_id: str = Field(pattern=TOKEN_ID_PATTERN)
    secret: str = Field(pattern=SECRET_PATTERN)
    """Of the join token."""
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
