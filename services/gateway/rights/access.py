"""Access rights: workspaces, roles and grants. Pure.

A permission is a name such as `experiment.change`. A role is a set of them, granted to a user, a group or a service account, in
one workspace or in the whole cluster. Where nothing is granted, every user is a member of every workspace that is not private.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from immutables import Map

from tenuto.schemas.events import EventData
from tenuto.schemas.events.access import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    HolderKind,
    ProjectChanged,
    ProjectCreated,
    RoleChanged,
    RoleCreated,
    RoleGranted,
    RoleRemoved,
    RoleRevoked,
    WorkspaceChanged,
    WorkspaceCreated,
    WorkspaceSettings,
    WorkspaceStorageNoted,
)
from tenuto.schemas.events.request import ExperimentSubmitted

PERMISSIONS: Mapping[str, str] = {
    "cluster.view": "see the queue, agents, pools, shares, stores, users, roles and how the services are",
    "experiment.view": "see experiments, with their trials, metrics, logs, checkpoints and events",
    "experiment.create": "submit, reproduce, fork and continue experiments",
    "experiment.change": "change, pause, cancel, describe and archive experiments of one's own",
    "experiment.change_others": "the same for experiments of others",
    "workspace.create": "make workspaces, whose admin one is then",
    "project.change": "make, rename and archive projects of a workspace",
    "template.change": "set and remove templates of configurations",
    "workspace.admin": "change the workspace, and grant roles in it",
    "secret.change": "see the names of one's own secrets, set and remove them",
    "token.change": "see, make and revoke one's own tokens",
    "webhook.view": "see webhooks and what became of their notices",
    "webhook.change": "make webhooks, and try, change and remove those of one's own",
    "webhook.change_others": "the same for webhooks of others",
    "automation.view": "see automations, and how far each has read",
    "automation.change": "start automations, and change and remove those of one's own",
    "automation.change_others": "the same for automations of others",
    "user.admin": "make and remove users, and see, make and revoke their tokens",
    "role.admin": "make roles, and grant them in the whole cluster",
    "pool.admin": "set policies of pools, shares of slots, and which agents and slots are in service",
    "upkeep.admin": "verify and anchor the log, retry what was parked, rebuild views, remove what checkpoints left behind",
}
"""Name -> what it allows, for people."""

ALL = frozenset(PERMISSIONS)
BASE = frozenset(
    {"cluster.view", "workspace.create", "secret.change", "token.change"}
    | {"webhook.view", "webhook.change", "automation.view", "automation.change"}
)
"""Permissions of every user, as they concern no workspace."""
_VIEWER = frozenset({"experiment.view"})
_MEMBER = _VIEWER | {"experiment.create", "experiment.change", "project.change"}
_EDITOR = _MEMBER | {"experiment.change_others", "template.change"}
ROLES: Mapping[str, frozenset[str]] = {
    "viewer": _VIEWER,
    "member": _MEMBER,
    "editor": _EDITOR,
    "workspace_admin": _EDITOR | {"workspace.admin"},
    "cluster_admin": ALL,
}
"""Roles that every cluster has. Every user is a member of workspaces that are not private."""
OWN_ROLES_MAX = 100
GRANTS_MAX = 100
"""Most grants of one holder: each is looked at in every request."""
WORKSPACES_MAX = 1_000
PROJECTS_MAX = 1_000
"""Most projects of one workspace."""
DEFAULT = "default"
"""The workspace of experiments that name none."""


@dataclass(frozen=True)
class Principal:
    """User or service account of a request."""

    name: str
    kind: HolderKind = "user"
    groups: tuple[str, ...] = ()
    admin: bool = False
    """True: has every permission, without a grant."""
    limited_to: frozenset[str] | None = None
    """Permissions that the token is limited to: the subject has the intersection. None: the token is not limited."""
    workspace: str = ""
    """Workspace that the token is limited to. Empty: all that the subject may see."""

    @property
    def holders(self) -> tuple[str, ...]:
        return (f"{self.kind}/{self.name}", *(f"group/{group}" for group in self.groups))


class Grant(NamedTuple):
    role: str
    workspace: str = ""
    """Workspace of the grant. Empty: the whole cluster."""


@dataclass(frozen=True)
class Project:
    archived: bool = False
    description: str = ""


@dataclass(frozen=True)
class Workspace:
    private: bool = False
    """True: only users with a role in it see it."""
    archived: bool = False
    """True: it takes no new experiments."""
    description: str = ""
    projects: Map[str, Project] = field(default_factory=Map)
    """Projects by name."""
    priority_min: int = PRIORITY_MIN
    priority_max: int = PRIORITY_MAX
    slots_max: int = 0
    """Most slots of one experiment. 0: no limit."""
    images: tuple[str, ...] = ()
    """Patterns of the images that experiments may run in. Empty: any."""
    storage_bytes_max: int = 0
    """Bytes of kept checkpoints at which it stops taking new experiments. 0: no limit."""
    wall_hours_max: float = 0.0
    """Longest time in hours that one experiment may run. 0: no limit."""
    noted_bytes: int | None = None
    """Bytes of kept checkpoints, as they were noted when they reached the limit. None: they are below it."""


@dataclass(frozen=True)
class Access:
    workspaces: Map[str, Workspace] = field(default_factory=Map)
    """Workspaces by name: those that were made, and those that an experiment named. `default` exists in any case."""
    roles: Map[str, tuple[str, ...]] = field(default_factory=Map)
    """Own roles of this cluster: name -> permissions."""
    grants: Map[str, tuple[Grant, ...]] = field(default_factory=Map)
    """Grants by holder, such as `user/olga` or `group/vision`."""

    @property
    def has_private(self) -> bool:
        return any(self.workspaces[name].private for name in sorted(self.workspaces))


def role_permissions(access: Access, role: str) -> frozenset[str]:
    """Permissions of the role; none if it does not exist any more."""
    known = ROLES.get(role)
    return known if known is not None else frozenset(access.roles.get(role, ()))


def held(access: Access, subject: Principal, workspace: str = "") -> frozenset[str]:
    """Permissions of the subject, whatever its token is limited to. `workspace`: in this one. Empty: in the whole cluster."""
    if subject.admin:
        return ALL
    found = BASE
    if workspace and not is_private(access, workspace):
        found |= _MEMBER
    for holder in subject.holders:
        for grant in access.grants.get(holder, ()):
            if not grant.workspace or grant.workspace == workspace:
                found |= role_permissions(access, grant.role)
    return found


def is_outside(subject: Principal, permission: str, workspace: str) -> bool:
    """True if the token is limited to another workspace, or to any if the question is about the whole cluster."""
    return (
        bool(subject.workspace) and workspace != subject.workspace and (bool(workspace) or permission not in _BESIDE_WORKSPACES)
    )


_BESIDE_WORKSPACES = frozenset({"cluster.view"})
"""Permissions in the whole cluster that a token of one workspace has, too: a submission reads the queue."""


def allowed(access: Access, subject: Principal, permission: str, workspace: str = "") -> bool:
    """True if the subject has the permission in the workspace, or in the whole cluster if none is named."""
    if subject.limited_to is not None and permission not in subject.limited_to:
        return False
    return not is_outside(subject, permission, workspace) and permission in held(access, subject, workspace)


def workspace_of(access: Access, name: str) -> Workspace:
    """Workspace of that name; an unknown one is open."""
    return access.workspaces.get(name, _OPEN)


_OPEN = Workspace()


def is_private(access: Access, workspace: str) -> bool:
    return workspace_of(access, workspace).private


class Sight(NamedTuple):
    """Experiments that a subject sees."""

    hidden: frozenset[str] = frozenset()
    """Private workspaces in which no role lets it see them; and all but one if its token is limited to that one."""
    nothing: bool = False
    """True: its token is limited to other permissions."""

    def sees(self, workspace: str) -> bool:
        return not self.nothing and workspace not in self.hidden

    @property
    def everything(self) -> bool:
        return not self.hidden and not self.nothing


def sight(access: Access, subject: Principal) -> Sight:
    hidden = {
        name
        for name in sorted(access.workspaces)
        if access.workspaces[name].private and "experiment.view" not in held(access, subject, name)
    }
    if subject.workspace:
        hidden |= {*access.workspaces, DEFAULT} - {subject.workspace}
    nothing = subject.limited_to is not None and "experiment.view" not in subject.limited_to
    return Sight(frozenset(hidden), nothing)


def is_cluster_admin(access: Access, subject: Principal) -> bool:
    return held(access, subject) >= ALL


# Folds.


def fold(access: Access, data: EventData) -> Access:
    if isinstance(data, (WorkspaceCreated, WorkspaceChanged, ProjectCreated, ProjectChanged)):
        return _fold_workspace(access, data)
    if isinstance(data, WorkspaceStorageNoted):
        noted = data.stored_bytes if 0 < data.limit_bytes <= data.stored_bytes else None
        known = replace(workspace_of(access, data.workspace), noted_bytes=noted)
        return replace(access, workspaces=access.workspaces.set(data.workspace, known))
    if isinstance(data, ExperimentSubmitted):
        return with_project(access, data.config.resources.workspace, data.config.project)
    if isinstance(data, (RoleCreated, RoleChanged)):
        return replace(access, roles=access.roles.set(data.name, data.permissions))
    if isinstance(data, RoleRemoved):
        return _without_role(access, data.name)
    if isinstance(data, RoleGranted):
        return _with_grants(access, data, (Grant(data.role, data.workspace or ""),))
    if isinstance(data, RoleRevoked):
        return _with_grants(access, data, ())
    return access


OF_ACCESS: tuple[type[EventData], ...] = (
    WorkspaceCreated,
    WorkspaceChanged,
    WorkspaceStorageNoted,
    ProjectCreated,
    ProjectChanged,
    RoleCreated,
    RoleChanged,
    RoleRemoved,
    RoleGranted,
    RoleRevoked,
)


def with_project(access: Access, workspace: str, project: str) -> Access:
    """Access rights with the workspace and the project that an experiment names; missing ones begin with it."""
    found = access.workspaces.get(workspace)
    if found is not None and (not project or project in found.projects):
        return access
    found = found or Workspace()
    if project:
        found = replace(found, projects=found.projects.set(project, Project()))
    return replace(access, workspaces=access.workspaces.set(workspace, found))


def _fold_workspace(access: Access, data: WorkspaceCreated | WorkspaceChanged | ProjectCreated | ProjectChanged) -> Access:
    workspace = workspace_of(access, data.workspace)
    if isinstance(data, WorkspaceCreated):
        workspace = Workspace(private=data.private, description=data.description)
    elif isinstance(data, WorkspaceChanged):
        workspace = replace(workspace, **_given(data, *WorkspaceSettings.model_fields))
    elif isinstance(data, ProjectCreated):
        workspace = replace(workspace, projects=workspace.projects.set(data.project, Project(description=data.description)))
    else:
        project = replace(workspace.projects.get(data.project, Project()), **_given(data, "archived", "description"))
        projects = workspace.projects.delete(data.project) if data.project in workspace.projects else workspace.projects
        workspace = replace(workspace, projects=projects.set(data.name or data.project, project))
    return replace(access, workspaces=access.workspaces.set(data.workspace, workspace))


def _given(data: EventData, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(data, name)) is not None}


def without_holder(access: Access, holder: str) -> Access:
    """Access rights after the end of a user: a later user of that name begins with nothing."""
    return replace(access, grants=access.grants.delete(holder)) if holder in access.grants else access


def _with_grants(access: Access, data: RoleGranted | RoleRevoked, new: tuple[Grant, ...]) -> Access:
    holder, grant = f"{data.kind}/{data.name}", Grant(data.role, data.workspace or "")
    kept = tuple(item for item in access.grants.get(holder, ()) if item != grant) + new
    if kept:
        return replace(access, grants=access.grants.set(holder, kept))
    return without_holder(access, holder)


def _without_role(access: Access, role: str) -> Access:
    """Access rights without the role and its grants, so that its holders do not get a role of that name that is made later."""
    roles = access.roles.delete(role) if role in access.roles else access.roles
    grants = access.grants
    for holder in sorted(grants):
        kept = tuple(item for item in grants[holder] if item.role != role)
        if not kept:
            grants = grants.delete(holder)
        elif len(kept) < len(grants[holder]):
            grants = grants.set(holder, kept)
    return replace(access, roles=roles, grants=grants)
