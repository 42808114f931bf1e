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
    """From now on, configurations that name the template get these values where they say nothing."""

    version: int = Field(ge=1)
    """How often it was set since it was made, from 1."""
    config: dict[str, Any]
    """In the shape of a configuration, with what the template says only."""


@event("TemplateRemoved")
class TemplateRemoved(TemplateRequest):
    """Nobody can name the template any more. Experiments that were submitted with it keep what it gave them."""


@event("WorkspaceDefaultsSet")
class WorkspaceDefaultsSet(ClusterRequest):
    """From now on, configurations of the workspace get these values where neither they nor their template say anything."""

    workspace: WorkspaceName
    version: int = Field(ge=1)
    """How often they were set, from 1."""
    config: dict[str, Any]
    """In the shape of a configuration. Empty: the workspace has no defaults of its own any more."""
