"""Workspaces and their projects."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from tenuto.schemas.base import from_object
from tenuto.schemas.events.access import ProjectSettings, WorkspaceSettings
from tenuto.schemas.names import NAME_PATTERN
from tenuto.services.gateway.http.bodies import RightsChanged
from tenuto.services.gateway.http.context import answer, asked
from tenuto.services.gateway.http.paths import WorkspaceName
from tenuto.services.gateway.http.recorded_answers import record_change
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.people.commands import ChangeProject, ChangeWorkspace, CreateProject, CreateWorkspace
from tenuto.services.gateway.people.door import Door, PeopleDoor
from tenuto.services.gateway.people.views import NewProjectBody, NewWorkspaceBody, ProjectView, WorkspaceView
from tenuto.services.gateway.rights.access import DEFAULT, Workspace, held, workspace_of

router = APIRouter(tags=["workspaces"], route_class=StrictRoute)
ProjectName = Annotated[str, Path(pattern=NAME_PATTERN)]


@router.get("/workspaces", response_model=list[WorkspaceView])
async def workspaces(door: Door) -> Response:
    """Workspaces that you see, including archived ones."""
    await door.users_known()
    access, seen = door.state.access, door.sight()
    counts = await door.views.experiment_counts(seen.hidden)
    names = sorted({DEFAULT, *access.workspaces} - seen.hidden)
    return answer([_view(door, name, sum(counts.get(name, {}).values())) for name in names])


@router.post("/workspaces", response_model=WorkspaceView, status_code=201)
async def create(door: Door, body: NewWorkspaceBody) -> Response:
    """Makes a workspace; you become its admin."""
    command = CreateWorkspace(**asked(door), workspace=body.name, private=body.private, description=body.description)
    await door.carry_out(command)
    return answer(_view(door, body.name, 0), 201)


@router.get("/workspaces/{workspace}", response_model=WorkspaceView)
async def show(door: Door, workspace: WorkspaceName) -> Response:
    counts = await door.views.experiment_counts(door.sight().hidden)
    stored = await door.views.stored_bytes(workspace)
    return answer(_view(door, workspace, sum(counts.get(workspace, {}).values()), stored))


@router.patch("/workspaces/{workspace}", response_model=RightsChanged)
async def change(door: Door, workspace: WorkspaceName, body: WorkspaceSettings) -> Response:
    return await record_change(door, ChangeWorkspace(**asked(door), workspace=workspace, settings=body))


@router.get("/workspaces/{workspace}/projects", response_model=list[ProjectView])
async def projects(door: Door, workspace: WorkspaceName) -> Response:
    """Projects of a workspace, including archived ones."""
    known = workspace_of(door.state.access, workspace).projects
    counts = (await door.views.experiment_counts(door.sight().hidden)).get(workspace, {})
    found = [
        ProjectView(
            name=name,
            archived=known[name].archived,
            description=known[name].description,
            experiments=counts.get(name, 0),
        )
        for name in sorted(known)
    ]
    return answer(found)


@router.post("/workspaces/{workspace}/projects", response_model=ProjectView, status_code=201)
async def create_project(door: Door, workspace: WorkspaceName, body: NewProjectBody) -> Response:
    command = CreateProject(**asked(door), workspace=workspace, project=body.name, description=body.description)
    await door.carry_out(command)
    return answer(ProjectView(name=body.name, archived=False, description=body.description, experiments=0), 201)


@router.patch("/workspaces/{workspace}/projects/{project}", response_model=RightsChanged)
async def change_project(door: Door, workspace: WorkspaceName, project: ProjectName, body: ProjectSettings) -> Response:
    return await record_change(door, ChangeProject(**asked(door), workspace=workspace, project=project, settings=body))


def _view(door: PeopleDoor, name: str, experiments: int, stored: int | None = None) -> WorkspaceView:
    access = door.state.access
    found: Workspace = workspace_of(access, name)
    return from_object(
        WorkspaceView,
        found,
        name=name,
        storage_bytes=stored,
        projects=len(found.projects),
        experiments=experiments,
        permissions=tuple(sorted(held(access, door.subject(), name))),
    )
