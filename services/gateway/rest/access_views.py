"""Roles and workspaces in requests and answers of the REST interface."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config.automation import RULES_MAX, AutomationRule
from tenuto.schemas.config.experiment import PROJECT_PATTERN
from tenuto.schemas.events.access import Description, Holding, RoleSettings, WorkspaceName
from tenuto.schemas.events.request import USER_NAME_PATTERN


class PermissionView(Model):
    name: str
    allows: str
    """What it allows, in words."""


class RoleView(Model):
    name: str
    permissions: tuple[str, ...]
    own: bool
    """True: a role of this cluster's own, which may be changed. False: every cluster has it."""


class NewRoleBody(RoleSettings):
    name: str = Field(pattern=USER_NAME_PATTERN)


class GrantView(Holding):
    workspace: str | None
    """Workspace that the role counts in. null: the whole cluster."""


class RightsChanged(Model):
    changed: bool
    """False: it was so already, and nothing is recorded."""


class WorkspaceView(Model):
    name: str
    private: bool
    """True: only who has a role in it, or in the whole cluster, sees it."""
    archived: bool
    """True: it takes no new experiments."""
    description: str
    priority_min: int
    priority_max: int
    """Its experiments have priorities from the one to the other; 1 is the most urgent."""
    slots_max: int
    """Most slots that one of its experiments may use at once. 0: no limit."""
    images: tuple[str, ...]
    """Names of the images that its experiments may run in; `*` stands for any text. Empty: any image."""
    storage_bytes_max: int
    """Bytes of kept checkpoints from which on it takes no new experiments. 0: no limit."""
    wall_hours_max: float
    """Longest time in hours that one of its experiments may run: that at least one of its trials holds its slots. 0: no limit."""
    storage_bytes: int | None = None
    """Bytes of its kept checkpoints. null in lists, where they are not counted."""
    projects: int
    """Number of its projects."""
    experiments: int
    """Number of its experiments, ended ones included."""
    permissions: tuple[str, ...]
    """What you may do in it, and in the whole cluster."""


class NewWorkspaceBody(Model):
    name: WorkspaceName
    private: bool = False
    """True: only who has a role in it sees it."""
    description: Description = ""


class ProjectView(Model):
    name: str
    archived: bool
    """True: it takes no new experiments."""
    description: str
    experiments: int
    """Number of its experiments, ended ones included."""


class NewProjectBody(Model):
    name: WorkspaceName
    description: Description = ""


class ProjectBody(Model):
    project: str = Field(pattern=PROJECT_PATTERN)
    """Project of the experiment's workspace. Empty: none."""


class WorkspaceRulesBody(Model):
    rules: tuple[AutomationRule, ...] = Field(min_length=1, max_length=RULES_MAX)
    """As under `automation` in a configuration, but for forks."""


class WorkspaceRulesView(Model):
    rules: tuple[AutomationRule, ...] = ()
    user: str = ""
    """User who set them, and whose webhooks they name. Empty: there are none."""
