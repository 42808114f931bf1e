"""Preview of a configuration before it is submitted."""

from __future__ import annotations

import json

from fastapi import APIRouter, Response

from tenuto.kernel.core import Refused
from tenuto.schemas.config import rungs
from tenuto.schemas.config.layers import BUILT_IN, COMMAND_LINE, Value, named
from tenuto.schemas.config.resources import Resources
from tenuto.services.gateway.experiments.bodies import PreviewBody, PreviewView, ValueView
from tenuto.services.gateway.experiments.decide.experiments import check_new
from tenuto.services.gateway.experiments.door import Door, ExperimentsDoor
from tenuto.services.gateway.experiments.handling.submitting import stored_bytes
from tenuto.services.gateway.http.context import answer
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.rights.access import workspace_of
from tenuto.services.gateway.rights.workspaces import check_storage
from tenuto.services.gateway.templates.handling import Resolution, resolve

router = APIRouter(tags=["workspaces"], route_class=StrictRoute)


@router.post("/preview", response_model=PreviewView)
async def preview(door: Door, body: PreviewBody) -> Response:
    """Preview of a configuration: merged with its template and the defaults of its workspace, with the source of each value.
    Nothing is recorded."""
    found = await resolve(door, body.config.encode(), body.overrides)
    refused = ""
    try:
        check_new(door.state, door.subject(), found.config)
        workspace = found.config.resources.workspace
        check_storage(door.state, workspace, await stored_bytes(door, workspace))
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


def _wall_hours_max(door: ExperimentsDoor, resources: Resources) -> float | None:
    """Limit of the configuration or the workspace, whichever ends first; a workspace that the asker does not see is ignored."""
    seen = door.sight().sees(resources.workspace)
    limit = workspace_of(door.state.access, resources.workspace).wall_hours_max if seen else 0.0
    return min((item for item in (resources.max_wall_hours, limit) if item), default=None)


def _value(item: Value, found: Resolution) -> ValueView:
    if item.source > 0:
        layer = found.layers[item.source - 1]
        return ValueView(path=item.path, value=item.value, source=layer.kind, source_name=named(layer))
    if item.source == COMMAND_LINE:
        return ValueView(path=item.path, value=item.value, source="command_line")
    return ValueView(path=item.path, value=item.value, source="built_in" if item.source == BUILT_IN else "configuration")
