"""Workspace settings of experiments: rules, and the project that an experiment is in."""

from __future__ import annotations

from fastapi import APIRouter, Response

from tenuto.services.gateway.experiments.bodies import ProjectBody, WorkspaceRulesBody, WorkspaceRulesView
from tenuto.services.gateway.experiments.commands import PutIntoProject, SetWorkspaceRules
from tenuto.services.gateway.experiments.door import Door
from tenuto.services.gateway.experiments.handling.paths import ExperimentId
from tenuto.services.gateway.http.bodies import RightsChanged
from tenuto.services.gateway.http.context import answer, asked
from tenuto.services.gateway.http.errors import not_found
from tenuto.services.gateway.http.paths import WorkspaceName
from tenuto.services.gateway.http.recorded_answers import record_change
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.trials.bodies import Done

router = APIRouter(tags=["workspaces"], route_class=StrictRoute)


@router.get("/workspaces/{workspace}/rules", response_model=WorkspaceRulesView)
async def rules(door: Door, workspace: WorkspaceName) -> Response:
    """Rules of the workspace: actions that the cluster takes by itself on events of its experiments."""
    found = door.state.acting.workspaces.get(workspace)
    return answer(WorkspaceRulesView() if found is None else WorkspaceRulesView(rules=found.rules, user=found.user))


@router.put("/workspaces/{workspace}/rules", response_model=RightsChanged)
async def set_rules(door: Door, workspace: WorkspaceName, body: WorkspaceRulesBody) -> Response:
    """Rules in place of those that there are, for all its experiments that have not ended."""
    return await record_change(door, SetWorkspaceRules(**asked(door), workspace=workspace, rules=body.rules))


@router.delete("/workspaces/{workspace}/rules", response_model=RightsChanged)
async def remove_rules(door: Door, workspace: WorkspaceName) -> Response:
    return await record_change(door, SetWorkspaceRules(**asked(door), workspace=workspace, rules=()))


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
