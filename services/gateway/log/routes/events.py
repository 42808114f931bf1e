"""The record itself: pages of events, and live updates that go on from any position."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tenuto.schemas.text import visible
from tenuto.services.gateway.http.context import ExperimentFilter, asking, asking_token, more
from tenuto.services.gateway.http.errors import DoorError, error_response, not_found
from tenuto.services.gateway.http.paging import next_page
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.log.door import Door, LogDoor
from tenuto.services.gateway.log.handling.tail import TooManyClients
from tenuto.services.gateway.log.queries.event_search import Wanted
from tenuto.services.gateway.read_models.explain import encode_told

router = APIRouter(tags=["events"], route_class=StrictRoute)
EVENTS_MAX = 5_000
"""Most events of one page: usually about two megabytes. A page ends after eight in any case, and says that there is more."""
_POSITION = re.compile(r"[0-9]{1,19}")
SHOWN_CHARACTERS = 80
"""Most characters shown of a header that is refused."""
Position = Annotated[int, Query(ge=0, le=2**62)]

Time = Annotated[int | None, Query(ge=0, le=2**62, description="Microseconds since 1970.")]
FOUND_MAX = 2_000

_ARRAY: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}}}, "description": "Events"}
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Server-sent events"}
}
_LINKS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}}, "description": "The event and its neighbours"}
}


class _Stream(StreamingResponse):
    """Stream that takes its place when it begins, and returns it however it ends."""

    def __init__(self, content: AsyncIterator[bytes], room: Callable[[], AbstractContextManager[None]], **arguments: Any) -> None:
        super().__init__(content, **arguments)
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._room():
                await super().__call__(scope, receive, send)
        except TooManyClients as error:
            await error_response("too_many", str(error))(scope, receive, send)


@router.get("/events", response_class=Response, responses=_ARRAY)
async def page(
    request: Request,
    door: Door,
    after: Position = 0,
    limit: Annotated[int, Query(ge=1, le=EVENTS_MAX)] = 500,
    experiment: ExperimentFilter = None,
    upto: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    type: Annotated[str, Query(max_length=2_000, description="Only these types, with commas between; with `experiment`.")] = "",
) -> Response:
    """Events with a position above `after`, in order. Payloads (`data`) are the recorded bytes; `sentence`, where
    an event records a reason, is made of it for people. With the header `Tenuto-More: true` the page was full, by number or by
    bytes: go on after its last event, or, of some types, as `Link` says."""
    if types := tuple(filter(None, type.split(","))):
        return await _of_types(request, door, types, experiment, after, upto, limit)
    correlation_id = None if experiment is None else str(experiment)
    judge = door.seen_events.judge(door.subject)
    while True:  # until something of a page may be seen: a page without anything would not say where to go on
        events = await door.log.read(after, limit, upto=upto, correlation_id=correlation_id)
        seen = await judge(events)
        if seen or not events.more:
            break
        after = events[-1].position
    body = b"[" + b",".join(encode_told(event) for event in seen) + b"]"
    onward = next_page(request, after=seen[-1].position) if events.more and seen else more(events.more)
    return Response(body, media_type="application/json", headers=onward)


async def _of_types(
    request: Request, door: LogDoor, types: tuple[str, ...], experiment: int | None, after: int, upto: int | None, limit: int
) -> Response:
    if experiment is None:
        raise DoorError("invalid", "type needs an experiment here; /events/search finds events of any.", "type")
    upto = 2**62 if upto is None else upto
    found, onward = await door.views.of_experiment(experiment, types, after, upto, limit)
    seen = await door.seen_events.judge(door.subject)(found)
    body = b"[" + b",".join(encode_told(event) for event in seen) + b"]"
    return Response(body, media_type="application/json", headers={} if onward is None else next_page(request, after=onward))


@router.get("/events/search", response_class=Response, responses=_ARRAY)
async def search(
    request: Request,
    door: Door,
    type: Annotated[str, Query(max_length=2_000, description="Types of events, with commas between.")] = "",
    service: Annotated[str, Query(max_length=100, description="`scheduler`, ..., `user`, or one user as `user:ada`.")] = "",
    experiment: ExperimentFilter = None,
    since_us: Time = None,
    until_us: Time = None,
    after: Position = 0,
    before: Annotated[int, Query(ge=1, le=2**62)] = 2**62,
    limit: Annotated[int, Query(ge=1, le=FOUND_MAX)] = 200,
) -> Response:
    """Events that match all conditions, the newest first. One request looks at 100,000 events; `Link` leads on, also from a page
    on which nothing was found."""
    wanted = Wanted(
        before=min(before, await door.log.head() + 1),
        after=after,
        types=tuple(filter(None, type.split(","))),
        service=service,
        correlation_id="" if experiment is None else str(experiment),
        since_us=since_us,
        until_us=until_us,
    )
    found, onward = await door.views.find_events(wanted, limit)
    seen = await door.seen_events.judge(door.subject)(found)
    body = b"[" + b",".join(encode_told(event) for event in seen) + b"]"
    headers = {} if onward is None else next_page(request, before=onward)
    return Response(body, media_type="application/json", headers=headers)


@router.get("/events/{position}/links", response_class=Response, responses=_LINKS)
async def links(door: Door, position: Annotated[int, Path(ge=1, le=2**62)]) -> Response:
    """The event (`event`), the one that caused it (`cause`; null where that was a user's request or a report of workers), and
    those that it caused (`followers`, at most 200), looked for among the 100,000 behind it."""
    judge = door.seen_events.judge(door.subject)
    events = await judge(await door.log.read(position - 1, 1, upto=position))
    if not events:
        raise not_found(f"event {position}")
    event = events[0]
    cause = None if event.causation_id is None else await door.log.find(event.causation_id)
    if cause is not None and not await judge([cause]):
        cause = None
    followers = await judge(await door.views.followers(position))
    body = b'{"event":%b,"cause":%b,"followers":[%b]}' % (
        encode_told(event),
        b"null" if cause is None else encode_told(cause),
        b",".join(encode_told(follower) for follower in followers),
    )
    return Response(body, media_type="application/json")


@router.get("/events/stream", response_class=StreamingResponse, responses=_STREAM)
async def stream(
    door: Door,
    after: Position = 0,
    experiment: ExperimentFilter = None,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Server-sent events from the event after `after` (or after `Last-Event-ID`, which goes first), without end.

    The id of each message is the event's position: come back with the last one, and no event is missed or seen twice.
    """
    if last_event_id:
        if not _POSITION.fullmatch(last_event_id) or int(last_event_id) > 2**62:
            shown = visible(last_event_id[:SHOWN_CHARACTERS])
            raise DoorError("invalid", f"Last-Event-ID is '{shown}', but must be a log position.", "Last-Event-ID")
        after = int(last_event_id)
    allowed = door.still_allowed()
    user, token = asking(), asking_token()
    judge = door.seen_events.judge(lambda: door.state.subject(user, token))
    return _Stream(
        door.tail.messages(after, None if experiment is None else str(experiment), allowed, judge),
        lambda: door.tail.room(asking()),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )
