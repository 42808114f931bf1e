"""The place of an experiment in the queue."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from tenuto.services.gateway.experiments.bodies import MoveBody
from tenuto.services.gateway.experiments.commands import MoveExperiment
from tenuto.services.gateway.experiments.door import Door
from tenuto.services.gateway.http.context import answer, asked
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.trials.bodies import Done

router = APIRouter(tags=["queue"], route_class=StrictRoute)


@router.post("/jobs/{experiment_id}/move", response_model=Done)
async def move(door: Door, experiment_id: Annotated[int, Path(ge=1, le=2**62)], body: MoveBody) -> Response:
    if (body.ahead_of is None) == (body.behind is None):
        raise DoorError("invalid", "Give either ahead_of or behind: the experiment beside which it should be.", "ahead_of")
    other = body.ahead_of if body.ahead_of is not None else body.behind
    assert other is not None
    await door.check_seen(other)
    command = MoveExperiment(**asked(door), experiment_id=experiment_id, other_id=other, behind=body.ahead_of is None)
    events = await door.carry_out(command)
    return answer(Done(id=experiment_id, changed=bool(events)))
