"""Workspaces and their projects, and which of them takes a new experiment."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events import EventData
from tenuto.schemas.events.access import ProjectChanged, ProjectCreated, RoleGranted, WorkspaceChanged, WorkspaceCreated
from tenuto.schemas.events.automation import WorkspaceRulesChanged
from tenuto.schemas.sentences.amounts import stored
from tenuto.services.gateway.commands import (
    ChangeProject,
    ChangeWorkspace,
    CreateProject,
    CreateWorkspace,
    SetWorkspaceRules,
    TemplateCommand,
    WorkspaceCommand,
)
from tenuto.services.gateway.decide.cluster import check_admin
from tenuto.services.gateway.policies.access import (
    DEFAULT,
    GRANTS_MAX,
    PROJECTS_MAX,
    WORKSPACES_MAX,
    Project,
    Subject,
    held,
    workspace_of,
)
from tenuto.services.gateway.policies.acting import check_workspace_rules
from tenuto.services.gateway.policies.permissions import (
    CHANGES_PROJECTS,
    CHANGES_WORKSPACE,
    CREATES_EXPERIMENT,
    Rule,
    refusal,
)
from tenuto.services.gateway.state import State


def create(state: State, command: CreateWorkspace) -> Sequence[EventData]:
    """Who makes it is its admin."""
    check_admin(state, command, "workspace.create")
    name = command.workspace
    if is_known(state, name):
        raise Refused(f"There is a workspace {name} already; `tenuto workspace ls` lists those that you see.", "conflict")
    _check_room(state)
    made = WorkspaceCreated(workspace=name, private=command.private, description=command.description)
    subject = state.subject(command.user)
    if "workspace.admin" in held(state.access, subject, name):
        return [made]
    if len(state.access.grants.get(subject.holders[0], ())) >= GRANTS_MAX:
        raise Refused(f"You have {GRANTS_MAX} roles, and no more are kept; an admin of one of them may revoke it.", "conflict")
    return [made, RoleGranted(kind=subject.kind, name=subject.name, role="workspace_admin", workspace=name)]


def change(state: State, command: ChangeWorkspace) -> Sequence[EventData]:
    check_workspace(state, command, CHANGES_WORKSPACE)
    if command.workspace == DEFAULT and command.settings.archived:
        raise Refused(
            "The workspace default takes the experiments that name none, so it stays open; archive another.", "conflict"
        )
    now = workspace_of(state.access, command.workspace)
    new = {name: value for name, value in command.settings if value is not None and value != getattr(now, name)}
    first, last = new.get("priority_min", now.priority_min), new.get("priority_max", now.priority_max)
    if first > last:
        raise Refused(f"No priority is {first} at least and {last} at most; give both ends of the range.", "invalid")
    return [WorkspaceChanged(workspace=command.workspace, **new)] if new else []


def set_rules(state: State, command: SetWorkspaceRules) -> Sequence[EventData]:
    check_workspace(state, command, CHANGES_WORKSPACE)
    check_workspace_rules(state, command.rules, command.user)
    known = state.acting.workspaces.get(command.workspace)
    if (known.rules if known is not None else ()) == command.rules and (known is None or known.user == command.user):
        return []
    return [WorkspaceRulesChanged(workspace=command.workspace, rules=command.rules, user=command.user)]


def create_project(state: State, command: CreateProject) -> Sequence[EventData]:
    check_workspace(state, command, CHANGES_PROJECTS)
    workspace, name = workspace_of(state.access, command.workspace), command.project
    if name in workspace.projects:
        raise Refused(f"There is a project {name} in workspace {command.workspace} already.", "conflict")
    _check_room_for_project(state, command.workspace)
    return [ProjectCreated(workspace=command.workspace, project=name, description=command.description)]


def change_project(state: State, command: ChangeProject) -> Sequence[EventData]:
    check_workspace(state, command, CHANGES_PROJECTS)
    projects = workspace_of(state.access, command.workspace).projects
    if command.project not in projects:
        raise no_project(command.workspace, command.project)
    now = {"name": command.project, **vars(projects[command.project])}
    new = {name: value for name, value in command.settings if value is not None and value != now[name]}
    if (name := new.get("name")) is not None and name in projects:
        raise Refused(f"There is a project {name} in workspace {command.workspace} already.", "conflict")
    return [ProjectChanged(workspace=command.workspace, project=command.project, **new)] if new else []


def check_place(state: State, subject: Subject, workspace: str, project: str) -> None:
    """Whether the subject may submit an experiment there. Raises Refused."""
    if why := refusal(state.access, subject, CREATES_EXPERIMENT, workspace=workspace):
        raise Refused(why, "forbidden")
    found = workspace_of(state.access, workspace)
    if found.archived:
        hint = f"`tenuto workspace unarchive {workspace}` opens it again"
        raise Refused(f"Workspace {workspace} is archived, so it takes no new experiments; {hint}.", "conflict")
    if not is_known(state, workspace):
        _check_room(state)
    if project:
        check_project(state, workspace, project, begins=True)


def check_limits(state: State, config: ExperimentConfig) -> None:
    """Whether the workspace's limits hold for a new experiment. Raises Refused."""
    resources = config.resources
    check_priority(state, resources.workspace, resources.priority)
    if resources.slots_max:
        single = config.searcher.name == "single"
        check_slots(state, resources.workspace, resources.max_slots or (resources.slots_max if single else None))
        check_slots(state, resources.workspace, resources.slots_max)  # of one trial, whatever the experiment says of all
    check_image(state, resources.workspace, config.environment.image)
    check_wall_hours(state, resources.workspace, resources.max_wall_hours)


def check_priority(state: State, workspace: str, priority: int) -> None:
    """Raises Refused."""
    limits = workspace_of(state.access, workspace)
    if not limits.priority_min <= priority <= limits.priority_max:
        raise Refused(
            f"Workspace {workspace} takes priorities from {limits.priority_min} to {limits.priority_max}, and this is {priority}"
            "; ask for one of these, or an admin of the workspace for others.",
            "forbidden",
        )


def check_slots(state: State, workspace: str, slots: int | None) -> None:
    """`slots`: most that the experiment uses at once; None: as many as there are. Raises Refused."""
    limit = workspace_of(state.access, workspace).slots_max
    if limit and (slots is None or slots > limit):
        asked = "any number" if slots is None else str(slots)
        raise Refused(
            f"Experiments of workspace {workspace} use {limit} slots at most, and this one asks for {asked}: "
            f"say at most {limit} in resources.max_slots and slots_per_trial, or ask an admin of the workspace for more.",
            "forbidden",
        )


def check_image(state: State, workspace: str, image: str | None) -> None:
    """Without an image an experiment runs in the environment of the agents, which is their operator's. Raises Refused."""
    allowed = workspace_of(state.access, workspace).images
    if not allowed or image is None or any(fits(pattern, image) for pattern in allowed):
        return
    shown = ", ".join(allowed[:IMAGES_SHOWN]) + (", ..." if len(allowed) > IMAGES_SHOWN else "")
    raise Refused(
        f"Workspace {workspace} allows the images {shown}, and environment.image is {image}; name one of these, or ask an "
        "admin of the workspace for another.",
        "forbidden",
    )


def check_wall_hours(state: State, workspace: str, hours: float | None) -> None:
    """`hours`: longest time that the experiment may run by its configuration; None: as long as the workspace lets it. Raises
    Refused."""
    limit = workspace_of(state.access, workspace).wall_hours_max
    if limit and hours is not None and hours > limit:
        raise Refused(
            f"Experiments of workspace {workspace} run for {limit:g} h at most, and resources.max_wall_hours is {hours:g}: "
            f"say at most {limit:g}, or leave it out, or ask an admin of the workspace for more.",
            "forbidden",
        )


def check_storage(state: State, workspace: str, stored_bytes: int | None) -> None:
    """`stored_bytes`: of the workspace's checkpoints, as the views say; None: nobody counted. Raises Refused."""
    limit = workspace_of(state.access, workspace).storage_bytes_max
    if limit and stored_bytes is not None and stored_bytes >= limit:
        raise Refused(
            f"The checkpoints of workspace {workspace} have {stored(stored_bytes)}, and it may have {stored(limit)}, so it takes "
            "no new experiments; delete experiments (`tenuto exp delete`), or ask an admin of the workspace for more.",
            "forbidden",
        )


def check_project(state: State, workspace: str, project: str, *, begins: bool = False) -> None:
    """Whether the project takes an experiment. `begins`: one that does not exist begins with it. Raises Refused."""
    projects = workspace_of(state.access, workspace).projects
    if project not in projects:
        if not begins:
            raise no_project(workspace, project)
        _check_room_for_project(state, workspace)
    if projects.get(project, Project()).archived:
        hint = f"`tenuto project unarchive {project} -w {workspace}` opens it again"
        raise Refused(f"Project {project} of workspace {workspace} is archived, so it takes no experiments; {hint}.", "conflict")


def is_known(state: State, workspace: str) -> bool:
    return workspace == DEFAULT or workspace in state.access.workspaces


def no_workspace(name: str) -> Refused:
    return Refused(f"There is no workspace {name}; `tenuto workspace ls` lists those that you see.", "not_found")


def no_project(workspace: str, name: str) -> Refused:
    hint = f"`tenuto project ls -w {workspace}` lists those that there are"
    return Refused(f"There is no project {name} in workspace {workspace}; {hint}.", "not_found")


def check_workspace(state: State, command: WorkspaceCommand | TemplateCommand, rule: Rule) -> None:
    """Raises Refused."""
    assert command.workspace is not None
    if not is_known(state, command.workspace):
        raise no_workspace(command.workspace)
    if why := refusal(state.access, state.subject(command.user), rule, workspace=command.workspace):
        raise Refused(why, "forbidden")


IMAGES_SHOWN = 5


def fits(pattern: str, image: str) -> bool:
    """Whether the pattern, in which `*` stands for any text, is the whole name. Its time grows with their lengths only, however
    many stars there are."""
    first, *parts = pattern.split("*")
    if not parts:
        return image == pattern
    last = parts.pop()
    if not (image.startswith(first) and image.endswith(last) and len(first) + len(last) <= len(image)):
        return False
    at, end = len(first), len(image) - len(last)
    for part in parts:
        found = image.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _check_room(state: State) -> None:
    """Raises Refused."""
    if len(state.access.workspaces) >= WORKSPACES_MAX:
        raise Refused(f"There are {WORKSPACES_MAX} workspaces, and no more are kept; use one of them.", "conflict")


def _check_room_for_project(state: State, workspace: str) -> None:
    """Raises Refused."""
    if len(workspace_of(state.access, workspace).projects) >= PROJECTS_MAX:
        raise Refused(f"Workspace {workspace} has {PROJECTS_MAX} projects, and no more are kept; use one of them.", "conflict")
