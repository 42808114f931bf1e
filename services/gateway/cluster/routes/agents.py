"""Agents and their slots."""

from __future__ import annotations

from fastapi import APIRouter, Response

from tenuto.services.gateway.cluster.door import Door
from tenuto.services.gateway.cluster.handling.anonymous import agents_as_seen, experiments_on
from tenuto.services.gateway.cluster.views import AgentView
from tenuto.services.gateway.http.context import answer
from tenuto.services.gateway.http.strict_json import StrictRoute

router = APIRouter(tags=["cluster"], route_class=StrictRoute)


@router.get("/agents", response_model=list[AgentView])
async def agents(door: Door) -> Response:
    found, seen = await door.views.agents(), door.sight()
    if not seen.everything:
        hidden = None if seen.nothing else await door.views.hidden_among(experiments_on(found), seen.hidden)
        found = agents_as_seen(found, hidden)
    return answer(found)
