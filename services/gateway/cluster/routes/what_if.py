"""Simulates from the record what would have happened in a pool under another policy, or with more slots."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Query, Response

from tenuto.schemas.events.request import PolicyName
from tenuto.schemas.what_if import Course, WhatIfAnswer, WhatIfQuestion
from tenuto.services.gateway.cluster.adapters.past_queue import NoPastQueue
from tenuto.services.gateway.cluster.door import Door
from tenuto.services.gateway.cluster.handling.paths import At, PoolName
from tenuto.services.gateway.http.context import answer, asking
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.strict_json import StrictRoute

router = APIRouter(tags=["queue"], route_class=StrictRoute)


@router.get("/pools/{pool}/what-if", response_model=WhatIfAnswer)
async def what_if(
    door: Door,
    pool: PoolName,
    policy: Annotated[PolicyName | None, Query(description="Instead of the recorded policies.")] = None,
    agents: Annotated[int, Query(ge=0, le=100, description="Agents that the pool has beside those on record.")] = 0,
    slots: Annotated[int, Query(ge=1, le=64, description="Slots of each of these.")] = 8,
    trials: Annotated[int, Query(ge=1, le=2_000, description="The newest trials that ended are run again.")] = 500,
    at: At | None = None,
) -> Response:
    """The recorded trials of the cluster run again by the scheduler's own rules under a virtual clock, beside what happened:
    waiting times, use, preemptions, and who had which slot when. Takes seconds; one at a time."""
    question = WhatIfQuestion(pool=pool, policy=policy, agents=agents, slots=slots, trials=trials, upto=at)
    try:
        found = await door.what_ifs.of(door.ask, question, asking())
    except NoPastQueue as error:
        raise DoorError(error.code, str(error)) from error
    seen = door.sight()
    if seen.everything:
        return answer(found)
    experiments = sorted({segment[4] for course in found.courses for segment in course.segments})
    hidden = None if seen.nothing else await door.views.hidden_among(experiments, seen.hidden)
    return answer(found.model_copy(update={"courses": tuple(_as_seen(course, hidden) for course in found.courses)}))


def _as_seen(course: Course, hidden: Collection[int] | None) -> Course:
    """`hidden`: experiments that are not named. None: all."""
    segments = tuple((*segment[:4], 0) if hidden is None or segment[4] in hidden else segment for segment in course.segments)
    return course.model_copy(update={"segments": segments})
