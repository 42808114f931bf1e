"""Requests about rights: workspaces, their projects, roles and who has them. Owner: gateway. Stream: request/cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config.experiment import PROJECT_PATTERN
from tenuto.schemas.config.resources import WALL_HOURS_MAX
from tenuto.schemas.events.registry import event
from tenuto.schemas.events.request import USER_NAME_PATTERN, ClusterRequest, RequestEvent
from tenuto.schemas.image_patterns import ImagePattern
from tenuto.schemas.names import NAME_PATTERN

HolderKind = Literal["user", "group", "service"]
HOLDER_NAME_CHARACTERS_MAX = 256
"""Groups have the names that another system gave them."""
WorkspaceName = Annotated[str, Field(pattern=NAME_PATTERN)]
PermissionName = Annotated[str, Field(pattern=r"^[a-z_]{1,32}\.[a-z_]{1,32}$")]
PERMISSIONS_MAX = 100


class RoleSettings(Model):
    """Common fields of RoleCreated, RoleChanged and the requests for them."""

    permissions: tuple[PermissionName, ...] = Field(max_length=PERMISSIONS_MAX)
    """Names such as `experiment.view`, in order."""


class RoleRequest(ClusterRequest):
    name: str = Field(pattern=USER_NAME_PATTERN)


@event("RoleCreated")
class RoleCreated(RoleSettings, RoleRequest):
    """A role of this cluster's own."""


@event("RoleChanged")
class RoleChanged(RoleSettings, RoleRequest):
    """The permissions of a role changed; its holders have exactly these from now on."""


@event("RoleRemoved")
class RoleRemoved(RoleRequest):
    """A role was removed; its holders no longer have it."""


class Holding(Model):
    """Common fields of RoleGranted, RoleRevoked and the requests for them."""

    kind: HolderKind
    """Kind of the holder: a user, a group of users, or a service account."""
    name: str = Field(min_length=1, max_length=HOLDER_NAME_CHARACTERS_MAX)
    """Name of the holder."""
    role: str = Field(pattern=USER_NAME_PATTERN)


class HoldingRequest(Holding, ClusterRequest):
    workspace: WorkspaceName | None = None
    """Workspace that the role counts in. None: the whole cluster."""


@event("RoleGranted")
class RoleGranted(HoldingRequest):
    """The holder has the role."""


@event("RoleRevoked")
class RoleRevoked(HoldingRequest):
    """The holder has the role no more; what others granted stays."""


DESCRIPTION_CHARACTERS_MAX = 1_000
PRIORITY_MIN, PRIORITY_MAX = 1, 99
Description = Annotated[str, Field(max_length=DESCRIPTION_CHARACTERS_MAX)]
IMAGES_MAX = 100


def _is_none(value: object) -> bool:
    return value is None


class WorkspaceSettings(Model):
    """Common fields of WorkspaceChanged and the request for it. What is left out or null stays as it is. A limit is a number:
    `true` is none, and a text neither."""

    private: bool | None = Field(default=None, exclude_if=_is_none)
    """True: only who has a role in the workspace, or in the whole cluster, sees it. False: every user is a member."""
    archived: bool | None = Field(default=None, exclude_if=_is_none)
    """True: it takes no new experiments."""
    description: Description | None = Field(default=None, exclude_if=_is_none)
    """Text for people."""
    priority_min: int | None = Field(default=None, strict=True, ge=PRIORITY_MIN, le=PRIORITY_MAX, exclude_if=_is_none)
    """Smallest number, which is the most urgent one, that an experiment may have as its priority."""
    priority_max: int | None = Field(default=None, strict=True, ge=PRIORITY_MIN, le=PRIORITY_MAX, exclude_if=_is_none)
    """Largest number that an experiment may have as its priority."""
    slots_max: int | None = Field(default=None, strict=True, ge=0, le=2**31 - 1, exclude_if=_is_none)
    """Most slots that one experiment may use at once. 0: no limit."""
    images: tuple[ImagePattern, ...] | None = Field(default=None, max_length=IMAGES_MAX, exclude_if=_is_none)
    """Names of the images that an experiment may run in; `*` stands for any text. Empty: any image."""
    storage_bytes_max: int | None = Field(default=None, strict=True, ge=0, le=2**63 - 1, exclude_if=_is_none)
    """Bytes of kept checkpoints from which on the workspace takes no new experiments. 0: no limit."""
    wall_hours_max: float | None = Field(default=None, strict=True, ge=0, le=WALL_HOURS_MAX, exclude_if=_is_none)
    """Longest time in hours that one experiment may run: that at least one of its trials holds its slots. 0: no limit."""


@event("WorkspaceCreated")
class WorkspaceCreated(ClusterRequest):
    """A workspace was created by a user. One that an experiment names first begins with that experiment, without this event."""

    workspace: WorkspaceName
    private: bool = False
    description: Description = ""


@event("WorkspaceChanged")
class WorkspaceChanged(WorkspaceSettings, ClusterRequest):
    workspace: WorkspaceName


@event("WorkspaceStorageNoted")
class WorkspaceStorageNoted(ClusterRequest):
    """The checkpoints of the workspace have reached the limit, or are below it again. Rules that fork experiments go by it;
    submissions of users by the number at that moment."""

    workspace: WorkspaceName
    stored_bytes: int = Field(ge=0)
    """Bytes of its kept checkpoints."""
    limit_bytes: int = Field(ge=0)
    """0: no limit."""


@event("ProjectCreated")
class ProjectCreated(ClusterRequest):
    """A project was created by a user. One that an experiment names first begins with that experiment, without this event."""

    workspace: WorkspaceName
    project: WorkspaceName
    description: Description = ""


class ProjectSettings(Model):
    """Common fields of ProjectChanged and the request for it. What is left out or null stays as it is."""

    name: WorkspaceName | None = Field(default=None, exclude_if=_is_none)
    """New name. Configurations on record keep the old one."""
    archived: bool | None = Field(default=None, exclude_if=_is_none)
    """True: it takes no new experiments."""
    description: Description | None = Field(default=None, exclude_if=_is_none)
    """Text for people."""


@event("ProjectChanged")
class ProjectChanged(ProjectSettings, ClusterRequest):
    workspace: WorkspaceName
    project: WorkspaceName
    """Name before the change."""


@event("ExperimentProjectChanged")
class ExperimentProjectChanged(RequestEvent):
    """The experiment is in another project of its workspace."""

    project: str = Field(pattern=PROJECT_PATTERN)
    """Empty: in none."""
