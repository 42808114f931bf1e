"""Question of the launcher, and the gateway's answer: a join token for the agent of one node, and for no other."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.names import AGENT_NAME_PATTERN, NAME_PATTERN

NODE_TOKEN_SECONDS_MAX = 30 * 86_400
"""Longest validity: a node may wait for weeks in its provider's own queue."""


class NodeTokenQuestion(Model):
    node_id: str = Field(pattern=AGENT_NAME_PATTERN)
    """Name of the one agent that may join by it."""
    pool: str = Field(pattern=NAME_PATTERN)
    seconds: float = Field(gt=0, le=NODE_TOKEN_SECONDS_MAX)
    """Validity from now on."""


class NodeTokenAnswer(Model):
    token: str = Field(default="", repr=False)
    """Token as it is written (`JoinToken.written`). Empty: there is none, see `error`."""
    error: str = ""
    """Reason why there is none, as a sentence."""
