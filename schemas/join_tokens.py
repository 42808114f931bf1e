"""Join tokens as one string, which carries all that a machine needs to ask."""

from __future__ import annotations

import base64
import binascii
from typing import Self

from pydantic import Field, ValidationError

from tenuto.schemas.base import Model
from tenuto.schemas.joining import SECRET_PATTERN, TOKEN_ID_PATTERN

TOKEN_PREFIX = "tenuto-join-"
"""Prefix by which people and secret scanners recognise a join token."""
TOKEN_CHARACTERS_MAX = 4_096


class BadJoinToken(ValueError):
    """`str(error)` says why and what to do."""


class JoinToken(Model):
    """Contents of the string that a joining machine is given."""

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
