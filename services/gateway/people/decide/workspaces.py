"""Workspaces and their projects, and which of them takes a new experiment."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.access import ProjectChanged, ProjectCreated, RoleGranted, WorkspaceChanged, WorkspaceCreated
from tenuto.services.gateway.people.commands import ChangeProject, ChangeWorkspace, CreateProject, CreateWorkspace
from tenuto.services.gateway.rights.access import DEFAULT, GRANTS_MAX, held, workspace_of
from tenuto.services.gateway.rights.checks import check_admin
from tenuto.services.gateway.rights.permissions import CHANGES_PROJECTS, CHANGES_WORKSPACE
from tenuto.services.gateway.rights.state import PeopleState
from tenuto.services.gateway.rights.workspaces import check_room, check_room_for_project, check_workspace, is_known, no_project


def create(state: PeopleState, command: CreateWorkspace) -> Sequence[EventData]:
    """Events that create a workspace; its creator becomes its admin."""
    check_admin(state, command, "workspace.create")
    name = command.workspace
    if is_known(state, name):
        raise Refused(f"There is a workspace {name} already; `tenuto workspace ls` lists those that you see.", "conflict")
    check_room(state)
    made = WorkspaceCreated(workspace=name, private=command.private, description=command.description)
    subject = state.subject(command.user)
    if "workspace.admin" in held(state.access, subject, name):
        return [made]
    if len(state.access.grants.get(subject.holders[0], ())) >= GRANTS_MAX:
        raise Refused(f"You have {GRANTS_MAX} roles, and no more are kept; an admin of one of them may revoke it.", "conflict")
    return [made, RoleGranted(kind=subject.kind, name=subject.name, role="workspace_admin", workspace=name)]


def change(state: PeopleState, command: ChangeWorkspace) -> Sequence[EventData]:
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


def create_project(state: PeopleState, command: CreateProject) -> Sequence[EventData]:
    check_workspace(state, command, CHANGES_PROJECTS)
    workspace, name = workspace_of(state.access, command.workspace), command.project
    if name in workspace.projects:
        raise Refused(f"There is a project {name} in workspace {command.workspace} already.", "conflict")
    check_room_for_project(state, command.workspace)
    return [ProjectCreated(workspace=command.workspace, project=name, description=command.description)]


def change_project(state: PeopleState, command: ChangeProject) -> Sequence[EventData]:
    check_workspace(state, command, CHANGES_PROJECTS)
    projects = workspace_of(state.access, command.workspace).projects
    if command.project not in projects:
        raise no_project(command.workspace, command.project)
    now = {"name": command.project, **vars(projects[command.project])}
    new = {name: value for name, value in command.settings if value is not None and value != now[name]}
    if (name := new.get("name")) is not None and name in projects:
        raise Refused(f"There is a project {name} in workspace {command.workspace} already.", "conflict")
    return [ProjectChanged(workspace=command.workspace, project=command.project, **new)] if new else []


DECISIONS = decisions(create, change, create_project, change_project)
