"""Bodies of requests about the cluster."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.request import TokenLabel
from tenuto.schemas.joining import USES_MAX
from tenuto.schemas.names import NAME_PATTERN

JOIN_TOKEN_SECONDS_MAX = 30 * 24 * 3_600
"""Thirty days: a token that lies around longer is better made anew."""


class NewJoinTokenBody(Model):
    pool: str = Field(pattern=NAME_PATTERN)
    """Pool that its agents offer their slots to."""
    expires_seconds: int = Field(default=3_600, ge=1, le=JOIN_TOKEN_SECONDS_MAX)
    """Time in which agents may join by it; those that did stay."""
    uses_max: int = Field(default=1, ge=1, le=USES_MAX)
    """Most agents that join by it."""
    label: TokenLabel = ""
    """Purpose of the token."""
    url: str | None = Field(default=None, pattern=r"^https?://[^\s]+$", max_length=2_048)
    """Address of the gateway as machines that join reach it. null: TENUTO_PUBLIC_URL, or else the one that this request was sent
    to."""
