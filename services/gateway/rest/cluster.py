"""The cluster: agents, allocations, how far every consumer is, and whether the log is intact."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.schemas import subjects
from tenuto.schemas.bus import Backlog, BusState
from tenuto.services.gateway.queries import PAGE_MAX
from tenuto.services.gateway.rest.context import Door, ExperimentFilter, answer
from tenuto.services.gateway.views import AgentView, AllocationView, StatusView, TamperedView, VerifiedView

router = APIRouter(tags=["cluster"])
BUS_SECONDS_MAX = 0.5
"""For the relay's word on the bus, which it knows by heart, and the launcher's count of what waits."""
RELAY_AWAY = "The relay does not answer: it is not running, or NATS cannot be reached. Training goes on; what it reports waits."


@router.get("/agents", response_model=list[AgentView])
async def agents(door: Door) -> Response:
    return answer(await door.views.agents())


@router.get("/allocations", response_model=list[AllocationView])
async def allocations(
    door: Door,
    live: Annotated[bool, Query(description="Only those that hold slots now.")] = True,
    experiment: ExperimentFilter = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_MAX,
) -> Response:
    return answer(await door.views.allocations(live, experiment, limit))


@router.get("/status", response_model=StatusView)
async def status(door: Door) -> Response:
    state, backlog = await asyncio.gather(_bus_state(door), _backlog(door))
    return answer(await door.views.status(state, backlog))


async def _bus_state(door: Door) -> BusState:
    try:
        return BusState.from_json(await door.ask(subjects.BUS_STATE, b"", BUS_SECONDS_MAX))
    except (NatsError, TimeoutError, OSError, ValidationError):
        return BusState(ok=False, message=RELAY_AWAY)


async def _backlog(door: Door) -> Backlog:
    """None is shown while the launcher is away: what is wrong then stands elsewhere in the status."""
    try:
        return Backlog.from_json(await door.ask(subjects.BACKLOG, b"", BUS_SECONDS_MAX))
    except (NatsError, TimeoutError, OSError, ValidationError):
        return Backlog(lanes=())


@router.post("/log/verify", response_model=VerifiedView)
async def verify(door: Door) -> Response:
    """Recompute the hash chain of the whole log. Takes about a second per 100,000 events."""
    verified = await door.log.verify()
    tampered = verified.tampered
    return answer(
        VerifiedView(
            ok=tampered is None,
            events=verified.events,
            head=verified.head,
            head_hash=verified.head_hash.hex(),
            tampered=None if tampered is None else TamperedView(position=tampered.position, reason=tampered.reason),
        )
    )
