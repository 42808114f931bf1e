"""Templates of configurations, the defaults of workspaces, and what a configuration becomes with them."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from tenuto.kernel.core import Refused
from tenuto.schemas.config import rungs
from tenuto.schemas.config.resources import Resources
from tenuto.schemas.names import NAME_PATTERN
from tenuto.services.gateway.commands import AccessCommand, RemoveTemplate, SetDefaults, SetTemplate
from tenuto.services.gateway.decide.experiments import check_new
from tenuto.services.gateway.decide.templates import no_template
from tenuto.services.gateway.decide.workspaces import check_storage
from tenuto.services.gateway.policies.access import workspace_of
from tenuto.services.gateway.policies.layers import BUILT_IN, COMMAND_LINE, Value, named
from tenuto.services.gateway.policies.templates import Template
from tenuto.services.gateway.rest.access_views import RightsChanged
from tenuto.services.gateway.rest.context import Door, Gateway, answer, asked, asking
from tenuto.services.gateway.rest.resolving import Resolution, resolve
from tenuto.services.gateway.rest.routes.experiments import stored_bytes
from tenuto.services.gateway.rest.routes.workspaces import WorkspaceName
from tenuto.services.gateway.rest.strict import StrictRoute
from tenuto.services.gateway.rest.template_views import (
    PreviewBody,
    PreviewView,
    TemplateBody,
    TemplateDetail,
    TemplateView,
    ValueView,
)

router = APIRouter(tags=["workspaces"], route_class=StrictRoute)
TemplateName = Annotated[str, Path(pattern=NAME_PATTERN)]


@router.get("/templates", response_model=list[TemplateView])
async def templates(
    door: Door,
    workspace: Annotated[str | None, Query(pattern=NAME_PATTERN, description="Only those of it, and of the cluster.")] = None,
) -> Response:
    """Those that you see: of the whole cluster, and of workspaces."""
    await door.users_known()
    seen, found = door.sight(), []
    for place, name, template in door.loop.state.templates.named():
        if not place or (seen.sees(place) and workspace in (None, place)):
            found.append(_view(place, name, template))
    return answer(found)


@router.get("/templates/{template}", response_model=TemplateDetail)
async def show(door: Door, template: TemplateName) -> Response:
    """One of the whole cluster."""
    return await _show(door, "", template)


@router.put("/templates/{template}", response_model=TemplateView)
async def put(door: Door, template: TemplateName, body: TemplateBody) -> Response:
    """Sets one of the whole cluster. Experiments that were submitted with it before keep what it gave them."""
    return await _put(door, None, template, body)


@router.delete("/templates/{template}", response_model=RightsChanged)
async def remove(door: Door, template: TemplateName) -> Response:
    return await _record(door, RemoveTemplate(**asked(door), name=template, workspace=None))


@router.get("/workspaces/{workspace}/templates/{template}", response_model=TemplateDetail)
async def show_of_workspace(door: Door, workspace: WorkspaceName, template: TemplateName) -> Response:
    return await _show(door, workspace, template)


@router.put("/workspaces/{workspace}/templates/{template}", response_model=TemplateView)
async def put_into_workspace(door: Door, workspace: WorkspaceName, template: TemplateName, body: TemplateBody) -> Response:
    """Experiments of the workspace that name it get this one, and not one of the cluster that has the same name."""
    return await _put(door, workspace, template, body)


@router.delete("/workspaces/{workspace}/templates/{template}", response_model=RightsChanged)
async def remove_of_workspace(door: Door, workspace: WorkspaceName, template: TemplateName) -> Response:
    return await _record(door, RemoveTemplate(**asked(door), name=template, workspace=workspace))


@router.get("/workspaces/{workspace}/defaults", response_model=TemplateDetail)
async def show_defaults(door: Door, workspace: WorkspaceName) -> Response:
    """What experiments of the workspace get where neither they nor their template say anything. Version 0: never set."""
    found = door.loop.state.templates.find(workspace, "") or _NEVER
    return answer(TemplateDetail(**dict(_view(workspace, "", found)), config=json.loads(found.text)))


@router.put("/workspaces/{workspace}/defaults", response_model=TemplateView)
async def put_defaults(door: Door, workspace: WorkspaceName, body: TemplateBody) -> Response:
    config, notes = await door.reader.part(body.config.encode(), asking())
    await door.carry_out(SetDefaults(**asked(door), workspace=workspace, config=config))
    return answer(_view(workspace, "", door.loop.state.templates.find(workspace, "") or _NEVER, notes))


@router.delete("/workspaces/{workspace}/defaults", response_model=RightsChanged)
async def remove_defaults(door: Door, workspace: WorkspaceName) -> Response:
    return await _record(door, SetDefaults(**asked(door), workspace=workspace, config={}))


@router.post("/preview", response_model=PreviewView)
async def preview(door: Door, body: PreviewBody) -> Response:
    """What a configuration becomes with its template and the defaults of its workspace, and where each value comes from.
    Nothing is recorded."""
    found = await resolve(door, body.config.encode(), body.overrides)
    refused = ""
    try:
        check_new(door.loop.state, door.subject(), found.config)
        workspace = found.config.resources.workspace
        check_storage(door.loop.state, workspace, await stored_bytes(door, workspace))
    except Refused as error:
        refused = str(error)
    view = PreviewView(
        config=json.loads(found.config.to_json()),
        layers=found.layers,
        values=tuple(_value(item, found) for item in found.values),
        wall_hours_max=_wall_hours_max(door, found.config.resources),
        rungs=rungs.told(found.config),
        warnings=(*found.notes, *rungs.doubts(found.config)),
        refused=refused,
    )
    return answer(view)


def _wall_hours_max(door: Gateway, resources: Resources) -> float | None:
    """Of the configuration or the workspace, whichever ends first. A workspace that the asker does not see is not looked at."""
    seen = door.sight().sees(resources.workspace)
    limit = workspace_of(door.loop.state.access, resources.workspace).wall_hours_max if seen else 0.0
    return min((item for item in (resources.max_wall_hours, limit) if item), default=None)


def _value(item: Value, found: Resolution) -> ValueView:
    if item.source > 0:
        layer = found.layers[item.source - 1]
        return ValueView(path=item.path, value=item.value, source=layer.kind, source_name=named(layer))
    if item.source == COMMAND_LINE:
        return ValueView(path=item.path, value=item.value, source="command_line")
    return ValueView(path=item.path, value=item.value, source="built_in" if item.source == BUILT_IN else "configuration")


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


async def _show(door: Gateway, workspace: str, name: str) -> Response:
    await door.users_known()
    found = door.loop.state.templates.find(workspace, name)
    if found is None:
        raise no_template(workspace, name)
    return answer(TemplateDetail(**dict(_view(workspace, name, found)), config=json.loads(found.text)))


async def _put(door: Gateway, workspace: str | None, name: str, body: TemplateBody) -> Response:
    config, notes = await door.reader.part(body.config.encode(), asking())
    await door.carry_out(SetTemplate(**asked(door), name=name, workspace=workspace, config=config))
    found = door.loop.state.templates.find(workspace or "", name)
    if found is None:  # somebody removed it meanwhile
        raise no_template(workspace or "", name)
    return answer(_view(workspace or "", name, found, notes))


async def _record(door: Gateway, command: AccessCommand) -> Response:
    return answer(RightsChanged(changed=bool(await door.carry_out(command))))
