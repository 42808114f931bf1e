"""Upkeep by an operator: parked items, and views that are folded anew."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from tenuto.services.gateway.http.context import After, answer
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.paging import next_page
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.log.adapters.upkeep import PARKED_PAGE_MAX, ParkedDetail, ParkedView, Rebuilding
from tenuto.services.gateway.log.door import Door, LogDoor

router = APIRouter(tags=["cluster"], route_class=StrictRoute)
Number = Annotated[int, Path(ge=1, le=2**62)]


@router.get("/parked", response_model=list[ParkedView])
async def parked(
    request: Request,
    door: Door,
    after: After = -1,
    limit: Annotated[int, Query(ge=1, le=PARKED_PAGE_MAX)] = PARKED_PAGE_MAX,
) -> Response:
    """Events and reports that could not be handled, in the order in which they were parked. `after`: the last number of the page
    before. Empty if there are private workspaces that you do not see: reports quote their contents."""
    if door.sight().hidden:
        return answer([])
    found = await door.upkeep.parked(after, limit)
    return answer(found, headers=next_page(request, after=found[-1].number) if len(found) == limit else {})


@router.get("/parked/{number}", response_model=ParkedDetail)
async def show(door: Door, number: Number) -> Response:
    return answer(await _found(door, number))


@router.post("/parked/{number}/redeliver", response_model=ParkedDetail, status_code=202)
async def redeliver(door: Door, number: Number) -> Response:
    """Delivers a parked item again: its consumer tries it within seconds. Then it is gone, or stays with one more retry and its
    reason."""
    item = await _found(door, number)
    if item.of_a_view:
        raise DoorError(
            "conflict",
            "Views are folded in the order of the log, so one event cannot be added later: when its cause is mended, "
            "`tenuto views rebuild` folds them all again.",
        )
    await door.upkeep.ask_retry(number)
    return answer(item.model_copy(update={"retry_asked": True}), 202)


async def _found(door: LogDoor, number: int) -> ParkedDetail:
    item = None if door.sight().hidden else await door.upkeep.parked_item(number)
    if item is None:
        raise not_found(f"parked item {number}")
    return item


@router.post("/views/rebuild", response_model=Rebuilding, status_code=202)
async def rebuild(door: Door) -> Response:
    """Empties the views that lists and pages show, and folds them again from the whole log: while they fill, `GET /status` shows
    the position of the reader `views`. Decisions and training go on, as they do not read the views."""
    events = await door.log.head()
    await door.upkeep.rebuild_views()
    return answer(Rebuilding(events=events), 202)
