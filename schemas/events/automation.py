"""Rules of experiments and workspaces. Owner: gateway. Streams: request/<experiment>, request/cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tenuto.schemas.config.automation import RULES_MAX, AutomationRule
from tenuto.schemas.events.registry import Reason, event
from tenuto.schemas.events.request import ClusterRequest, RequestEvent
from tenuto.schemas.names import NAME_PATTERN


@event("ExperimentRuleActed")
class ExperimentRuleActed(RequestEvent):
    """A rule of the experiment's configuration or workspace acts; what it does is recorded behind this."""

    rule: int = Field(ge=0)
    """Place of the rule in `automation`, from 0 on."""
    do: Literal["pause", "kill", "fork", "webhook"]
    count: int = Field(ge=1)
    """Times that this rule has acted, this one included."""
    times_max: int = Field(ge=1)
    """Most times that it acts."""
    event_type: str
    """Type of the event because of which it acts."""
    trial_id: str | None = None
    """Trial that the event is about. None: it is about the whole experiment."""
    fork_id: int | None = None
    """Experiment that is submitted. None: the rule does something else."""
    workspace: str = Field(default="", exclude_if=lambda value: not value)
    """Workspace whose rule it is, and `rule` its place there. Empty: it is in the experiment's configuration."""
    reason: Reason


@event("WorkspaceRulesChanged")
class WorkspaceRulesChanged(ClusterRequest):
    """The rules of a workspace changed, for all its experiments that have not ended; none of the new rules has acted yet."""

    workspace: str = Field(pattern=NAME_PATTERN)
    rules: tuple[AutomationRule, ...] = Field(max_length=RULES_MAX)
    """Empty: there are none any more."""
    user: str
    """User who set them."""
