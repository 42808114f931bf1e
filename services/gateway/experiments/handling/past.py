"""Views of an experiment as of a position of the log, for handlers that take `at`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query

from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.services.gateway.experiments.door import ExperimentsDoor
from tenuto.services.gateway.experiments.queries.experiments import ExperimentQueries
from tenuto.services.gateway.http.context import asking
from tenuto.services.gateway.http.errors import DoorError, not_found

At = Annotated[
    int | None,
    Query(ge=1, le=2**62, description="Position of the log: the answer is as it was after that event. Without it: now."),
]


@contextlib.asynccontextmanager
async def views_at(door: ExperimentsDoor, experiment_id: int, at: int | None) -> AsyncIterator[ExperimentQueries]:
    """The reads of the present, or of the past if `at` is given. Raises DoorError."""
    if at is None:
        yield door.views
        return
    await check_past(door, experiment_id, at)
    await door.reached(at)
    async with door.past.at(experiment_id, at, asking()) as views:
        yield views


async def check_past(door: ExperimentsDoor, experiment_id: int, at: int) -> None:
    """Checks that the experiment was there at that position. Raises DoorError."""
    if at > (head := await door.log.head()):
        raise DoorError("not_found", f"The log has no position {at} yet: its last event has position {head}.", "at")
    submitted = await door.log.read(0, 1, types=(ExperimentSubmitted.TYPE,), stream=f"request/{experiment_id}")
    if submitted and submitted[0].position <= at:
        return
    if submitted:
        place = submitted[0].position
        message = f"Experiment {experiment_id} was not submitted yet at position {at}: it was at position {place}."
        raise DoorError("not_found", message, "at")
    if await door.views.exists(experiment_id):
        message = f"Experiment {experiment_id} is unmanaged: its values are not in the log, so no earlier moment can be shown."
        raise DoorError("conflict", message, "at")
    raise not_found(f"experiment {experiment_id}")
