"""Allocations: slots that were granted to trials."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tenuto.services.gateway.http.context import ExperimentFilter, answer
from tenuto.services.gateway.http.paging import Cursor, next_page, read_cursor
from tenuto.services.gateway.http.paging import cursor as made
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.read_models.decision_rows import PAGE_MAX
from tenuto.services.gateway.trials.door import Door
from tenuto.services.gateway.trials.views import AllocationView

router = APIRouter(tags=["cluster"], route_class=StrictRoute)


@router.get("/allocations", response_model=list[AllocationView])
async def allocations(
    request: Request,
    door: Door,
    live: Annotated[bool, Query(description="Only those that hold slots now.")] = True,
    experiment: ExperimentFilter = None,
    trial: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_MAX,
    cursor: Cursor = None,
) -> Response:
    """Allocations, the latest first."""
    behind = None if cursor is None else read_cursor(cursor, (int, str))
    found = await door.views.allocations(live, experiment, limit, behind, door.sight().hidden, trial)
    full = len(found) == limit
    return answer(found, headers=next_page(request, cursor=made(found[-1].granted_us, found[-1].id)) if full else {})
