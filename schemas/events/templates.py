"""Requests about templates of configurations, and the defaults of workspaces. Owner: gateway. Stream: request/cluster."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from tenuto.schemas.events.access import WorkspaceName
from tenuto.schemas.events.registry import event
from tenuto.schemas.events.request import ClusterRequest
from tenuto.schemas.names import NAME_PATTERN

TemplateName = Annotated[str, Field(pattern=NAME_PATTERN)]


class TemplateRequest(ClusterRequest):
    name: TemplateName
    workspace: WorkspaceName | None = None
    """Workspace that it is of. None: the whole cluster."""


@event("TemplateSet")
class TemplateSet(TemplateRequest):
    """A template was set; configurations that name it get these values for fields that they leave out."""

    version: int = Field(ge=1)
    """Number of times it was set since it was created, from 1."""
    config: dict[str, Any]
    """Part of a configuration, with only the values that the template gives."""


@event("TemplateRemoved")
class TemplateRemoved(TemplateRequest):
    """A template was removed and can no longer be named. Experiments that were submitted with it keep its values."""


@event("WorkspaceDefaultsSet")
class WorkspaceDefaultsSet(ClusterRequest):
    """The defaults of a workspace were set; they fill fields that a configuration and its template leave out."""

    workspace: WorkspaceName
    version: int = Field(ge=1)
    """Number of times they were set, from 1."""
    config: dict[str, Any]
    """Part of a configuration. Empty: the workspace no longer has defaults of its own."""
