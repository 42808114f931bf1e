"""Progress of every consumer, troubles that need attention, and the integrity of the log."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel.log_witnesses import cut, on_bus
from tenuto.schemas import subjects
from tenuto.schemas.bus import Backlog, BusState
from tenuto.services.gateway.http.concurrent_requests import REQUESTS_AT_ONCE_MAX
from tenuto.services.gateway.http.connections import DoorProtocol
from tenuto.services.gateway.http.context import answer, asking
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.request_metrics import DoorView, RequestsView
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.log.bodies import VerifyBody
from tenuto.services.gateway.log.door import Door, LogDoor
from tenuto.services.gateway.log.views import AnchoredView, StatusView, TamperedView, VerifiedView

router = APIRouter(tags=["cluster"], route_class=StrictRoute)
REQUESTS_SHOWN_MAX = 20
"""Most holders of requests that the status names; those near the limit are among the first."""
BUS_SECONDS_MAX = 2.0
"""Longest wait for the relay's report on the bus, which it has in memory, and for the launcher's count of waiting reports. Both
take milliseconds, but on a busy machine a running relay must not be called unreachable. NATS says at once if one does not run."""
RELAY_AWAY = "The relay does not answer: it is not running, or NATS cannot be reached. Training goes on; what it reports waits."


@router.get("/status", response_model=StatusView)
async def status(door: Door) -> Response:
    state, backlog, automations = await asyncio.gather(_bus_state(door), _backlog(door), door.automation_troubles())
    seen = door.sight()
    found = await door.views.status(state, backlog, seen.hidden)
    silent = () if seen.nothing else found.silent_trials
    shown = {
        "webhooks": door.webhook_troubles(),
        "automations": automations,
        "silent_trials": silent,
        "context_bytes_max": door.settings.context_bytes_max,
        "door": _door_state(door),
    }
    return answer(found.model_copy(update=shown))


def _door_state(door: LogDoor) -> DoorView:
    user = asking()
    all_ = door.state.may_all(user)
    shown = [(whose, count) for whose, count in door.requests.most_common() if whose and (all_ or whose == user)]
    return DoorView(
        connections=DoorProtocol.open,
        connections_max=DoorProtocol.connections_max,
        gave_way=DoorProtocol.gave_way,
        turned_away=DoorProtocol.turned_away,
        requests_max=REQUESTS_AT_ONCE_MAX,
        requests=tuple(RequestsView(whose=whose, under_way=count) for whose, count in shown[:REQUESTS_SHOWN_MAX]),
    )


async def _bus_state(door: Door) -> BusState:
    try:
        return BusState.from_json(await door.ask(subjects.BUS_STATE, b"", BUS_SECONDS_MAX))
    except (NatsError, TimeoutError, OSError, ValidationError):
        return BusState(ok=False, message=RELAY_AWAY)


async def _backlog(door: Door) -> Backlog:
    """Waiting reports by lane; empty while the launcher is unreachable, which the status shows elsewhere."""
    try:
        return Backlog.from_json(await door.ask(subjects.BACKLOG, b"", BUS_SECONDS_MAX))
    except (NatsError, TimeoutError, OSError, ValidationError):
        return Backlog(lanes=())


@router.post("/log/verify", response_model=VerifiedView)
async def verify(door: Door, body: VerifyBody | None = None) -> Response:
    """Recomputes the hash chain of the whole log, and compares its end with the records of its readers, the bus and the anchors.
    Takes about a second per 100,000 events."""
    folded = door.loop.position  # in this process's memory, which cannot be changed through the database
    verified = await door.log.verify()
    tampered, unchecked = verified.tampered, list[str]()
    if tampered is None and folded > verified.head:
        tampered = cut(verified.head, f"the gateway has folded it up to {folded}")
    if tampered is None and door.bus is not None:
        tampered, problem = await on_bus(door.bus, door.log)
        unchecked += [problem] if problem else []
    anchors = 0
    if tampered is None:
        tampered, anchors, unread = await door.anchors.compare(body.anchors if body else ())
        unchecked += unread
    return answer(
        VerifiedView(
            ok=tampered is None,
            events=verified.events,
            head=verified.head,
            head_hash=verified.head_hash.hex(),
            tampered=None if tampered is None else TamperedView(position=tampered.position, reason=tampered.reason),
            anchors=anchors,
            unchecked=tuple(unchecked),
        )
    )


@router.post("/log/anchor", response_model=AnchoredView)
async def anchor(door: Door) -> Response:
    """Writes the signed end of the log to all targets of TENUTO_ANCHOR_TARGETS."""
    if not door.anchors.targets:
        raise DoorError("conflict", "No place to note it is set: name some in TENUTO_ANCHOR_TARGETS of the gateway.")
    made, failed = await door.anchors.note()
    if made is None:
        raise DoorError("conflict", "The log is empty, or its last event is missing: `tenuto log verify` says which.")
    kept = tuple(target.name for target in door.anchors.targets if target.name not in failed)
    return answer(AnchoredView(anchor=made, kept=kept, failed=failed))
