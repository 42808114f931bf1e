"""Templates of configurations, the defaults of workspaces, and the configurations that they result in."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from tenuto.schemas.names import NAME_PATTERN
from tenuto.services.gateway.http.bodies import RightsChanged
from tenuto.services.gateway.http.context import answer, asked, asking
from tenuto.services.gateway.http.paths import WorkspaceName
from tenuto.services.gateway.http.recorded_answers import record_change
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.templates.bodies import TemplateBody, TemplateDetail, TemplateView
from tenuto.services.gateway.templates.commands import RemoveTemplate, SetDefaults, SetTemplate
from tenuto.services.gateway.templates.decide import no_template
from tenuto.services.gateway.templates.door import Door, TemplatesDoor
from tenuto.services.gateway.templates.state import Template

router = APIRouter(tags=["workspaces"], route_class=StrictRoute)
TemplateName = Annotated[str, Path(pattern=NAME_PATTERN)]


@router.get("/templates", response_model=list[TemplateView])
async def templates(
    door: Door,
    workspace: Annotated[str | None, Query(pattern=NAME_PATTERN, description="Only those of it, and of the cluster.")] = None,
) -> Response:
    """Templates that you see: of the whole cluster, and of workspaces."""
    await door.users_known()
    seen, found = door.sight(), []
    for place, name, template in door.state.templates.named():
        if not place or (seen.sees(place) and workspace in (None, place)):
            found.append(_view(place, name, template))
    return answer(found)


@router.get("/templates/{template}", response_model=TemplateDetail)
async def show(door: Door, template: TemplateName) -> Response:
    """A template of the whole cluster."""
    return await _show(door, "", template)


@router.put("/templates/{template}", response_model=TemplateView)
async def put(door: Door, template: TemplateName, body: TemplateBody) -> Response:
    """Sets a template of the whole cluster. Experiments that were submitted with it before keep the settings that it gave
    them."""
    return await _put(door, None, template, body)


@router.delete("/templates/{template}", response_model=RightsChanged)
async def remove(door: Door, template: TemplateName) -> Response:
    return await record_change(door, RemoveTemplate(**asked(door), name=template, workspace=None))


@router.get("/workspaces/{workspace}/templates/{template}", response_model=TemplateDetail)
async def show_of_workspace(door: Door, workspace: WorkspaceName, template: TemplateName) -> Response:
    return await _show(door, workspace, template)


@router.put("/workspaces/{workspace}/templates/{template}", response_model=TemplateView)
async def put_into_workspace(door: Door, workspace: WorkspaceName, template: TemplateName, body: TemplateBody) -> Response:
    """Sets a template of a workspace. Experiments of the workspace that name it get this one, and not one of the cluster that has
    the same name."""
    return await _put(door, workspace, template, body)


@router.delete("/workspaces/{workspace}/templates/{template}", response_model=RightsChanged)
async def remove_of_workspace(door: Door, workspace: WorkspaceName, template: TemplateName) -> Response:
    return await record_change(door, RemoveTemplate(**asked(door), name=template, workspace=workspace))


@router.get("/workspaces/{workspace}/defaults", response_model=TemplateDetail)
async def show_defaults(door: Door, workspace: WorkspaceName) -> Response:
    """Defaults of the workspace: settings of experiments where neither they nor their template say anything. Version 0: never
    set."""
    found = door.state.templates.find(workspace, "") or _NEVER
    return answer(TemplateDetail(**dict(_view(workspace, "", found)), config=json.loads(found.text)))


@router.put("/workspaces/{workspace}/defaults", response_model=TemplateView)
async def put_defaults(door: Door, workspace: WorkspaceName, body: TemplateBody) -> Response:
    config, notes = await door.reader.part(body.config.encode(), asking())
    await door.carry_out(SetDefaults(**asked(door), workspace=workspace, config=config))
    return answer(_view(workspace, "", door.state.templates.find(workspace, "") or _NEVER, notes))


@router.delete("/workspaces/{workspace}/defaults", response_model=RightsChanged)
async def remove_defaults(door: Door, workspace: WorkspaceName) -> Response:
    return await record_change(door, SetDefaults(**asked(door), workspace=workspace, config={}))


_NEVER = Template(0, "", "{}")


def _view(workspace: str, name: str, found: Template, warnings: tuple[str, ...] = ()) -> TemplateView:
    return TemplateView(
        name=name,
        workspace=workspace or None,
        version=found.version,
        digest=found.digest,
        size_bytes=len(found.text),
        warnings=warnings,
    )


async def _show(door: TemplatesDoor, workspace: str, name: str) -> Response:
    await door.users_known()
    found = door.state.templates.find(workspace, name)
    if found is None:
        raise no_template(workspace, name)
    return answer(TemplateDetail(**dict(_view(workspace, name, found)), config=json.loads(found.text)))


async def _put(door: TemplatesDoor, workspace: str | None, name: str, body: TemplateBody) -> Response:
    config, notes = await door.reader.part(body.config.encode(), asking())
    await door.carry_out(SetTemplate(**asked(door), name=name, workspace=workspace, config=config))
    found = door.state.templates.find(workspace or "", name)
    if found is None:  # it was removed meanwhile
        raise no_template(workspace or "", name)
    return answer(_view(workspace or "", name, found, notes))
