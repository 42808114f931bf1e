"""Questions to the launcher about what provisioners have, and its answers. They decide nothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.joining import AGENT_NAME_PATTERN
from tenuto.schemas.names import NAME_PATTERN
from tenuto.schemas.provisioning import Provisioning

LOG_LINES_MAX = 10_000


class NodesQuestion(Model):
    about: Literal["check", "logs"]
    pool: str = Field(pattern=NAME_PATTERN)
    provisioning: Provisioning | None = None
    """check: of these settings. None: of those that the pool has."""
    node_id: str = Field(default="", pattern=rf"^$|{AGENT_NAME_PATTERN}")
    """logs: of this node."""
    lines_max: int = Field(default=200, ge=1, le=LOG_LINES_MAX)


class CheckFinding(Model):
    what: str
    """What was checked, such as `partition gpu`."""
    problem: str = ""
    """What is wrong and what to do, as a sentence. Empty: it is well."""


class NodesAnswer(Model):
    findings: tuple[CheckFinding, ...] = ()
    logs: str = ""
    error: str = ""
    """Reason why there is no answer, as a sentence."""
    code: Literal["", "not_found", "unavailable"] = ""
