"""Workspaces and their projects: who works together, and on what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from tenuto.schemas.events.access import ProjectSettings, WorkspaceSettings
from tenuto.schemas.names import NAME_PATTERN
from tenuto.services.gateway.commands import (
    AccessCommand,
    ChangeProject,
    ChangeWorkspace,
    CreateProject,
    CreateWorkspace,
    PutIntoProject,
    SetWorkspaceRules,
)
from tenuto.services.gateway.policies.access import DEFAULT, Workspace, held, workspace_of
from tenuto.services.gateway.rest.access_views import (
    NewProjectBody,
    NewWorkspaceBody,
    ProjectBody,
    ProjectView,
    RightsChanged,
    WorkspaceRulesBody,
    WorkspaceRulesView,
    WorkspaceView,
)
from tenuto.services.gateway.rest.bodies import Done
from tenuto.services.gateway.rest.context import Door, Gateway, answer, asked
from tenuto.services.gateway.rest.errors import not_found
from tenuto.services.gateway.rest.routes.experiments import ExperimentId
from tenuto.services.gateway.rest.strict import StrictRoute

router = APIRouter(tags=["workspaces"], route_class=StrictRoute)
WorkspaceName = Annotated[str, Path(pattern=NAME_PATTERN)]
ProjectName = Annotated[str, Path(pattern=NAME_PATTERN)]


@router.get("/workspaces", response_model=list[WorkspaceView])
async def workspaces(door: Door) -> Response:
    """Those that you see, archived ones, too."""
    await door.users_known()
    access, seen = door.loop.state.access, door.sight()
    counts = await door.views.experiment_counts(seen.hidden)
    names = sorted({DEFAULT, *access.workspaces} - seen.hidden)
    return answer([_view(door, name, sum(counts.get(name, {}).values())) for name in names])


@router.post("/workspaces", response_model=WorkspaceView, status_code=201)
async def create(door: Door, body: NewWorkspaceBody) -> Response:
    """Makes a workspace, whose admin you are."""
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
    return await _record(door, ChangeWorkspace(**asked(door), workspace=workspace, settings=body))


@router.get("/workspaces/{workspace}/rules", response_model=WorkspaceRulesView)
async def rules(door: Door, workspace: WorkspaceName) -> Response:
    """What the cluster does by itself when something happens to an experiment of the workspace."""
    found = door.loop.state.acting.workspaces.get(workspace)
    return answer(WorkspaceRulesView() if found is None else WorkspaceRulesView(rules=found.rules, user=found.user))


@router.put("/workspaces/{workspace}/rules", response_model=RightsChanged)
async def set_rules(door: Door, workspace: WorkspaceName, body: WorkspaceRulesBody) -> Response:
    """Rules in place of those that there are, for all its experiments that have not ended."""
    return await _record(door, SetWorkspaceRules(**asked(door), workspace=workspace, rules=body.rules))


@router.delete("/workspaces/{workspace}/rules", response_model=RightsChanged)
async def remove_rules(door: Door, workspace: WorkspaceName) -> Response:
    return await _record(door, SetWorkspaceRules(**asked(door), workspace=workspace, rules=()))


@router.get("/workspaces/{workspace}/projects", response_model=list[ProjectView])
async def projects(door: Door, workspace: WorkspaceName) -> Response:
    """Archived ones, too."""
    known = workspace_of(door.loop.state.access, workspace).projects
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
    return await _record(door, ChangeProject(**asked(door), workspace=workspace, project=project, settings=body))


@router.put("/experiments/{experiment_id}/project", response_model=Done)
async def put_into_project(door: Door, experiment_id: ExperimentId, body: ProjectBody) -> Response:
    """Another project of its workspace, also after its end."""
    now = await door.views.experiment(experiment_id)
    if now is None:
        raise not_found(f"experiment {experiment_id}")
    if now.project == body.project:
        return answer(Done(id=experiment_id, changed=False))
    command = PutIntoProject(
        **asked(door), experiment_id=experiment_id, submitter=now.user, workspace=now.workspace, project=body.project
    )
    await door.carry_out(command)
    return answer(Done(id=experiment_id, changed=True))


def _view(door: Gateway, name: str, experiments: int, stored: int | None = None) -> WorkspaceView:
    access = door.loop.state.access
    found: Workspace = workspace_of(access, name)
    return WorkspaceView(
        name=name,
        private=found.private,
        archived=found.archived,
        description=found.description,
        priority_min=found.priority_min,
        priority_max=found.priority_max,
        slots_max=found.slots_max,
        images=found.images,
        storage_bytes_max=found.storage_bytes_max,
        wall_hours_max=found.wall_hours_max,
        storage_bytes=stored,
        projects=len(found.projects),
        experiments=experiments,
        permissions=tuple(sorted(held(access, door.subject(), name))),
    )


async def _record(door: Gateway, command: AccessCommand) -> Response:
    return answer(RightsChanged(changed=bool(await door.carry_out(command))))
