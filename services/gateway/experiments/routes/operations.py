"""Decisions of a user's own searcher, recorded once per event that it decided on."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Response

from tenuto.schemas.config import CustomSearcher, ExperimentConfig
from tenuto.schemas.config.space import check_point, flat, leaves_by_path
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import SearchOperationsRequested
from tenuto.schemas.ids import derived_event_id, name_id
from tenuto.schemas.operations import Create, Extend
from tenuto.services.gateway.experiments.bodies import OperationsBody, OperationsRecorded
from tenuto.services.gateway.experiments.commands import RequestOperations
from tenuto.services.gateway.experiments.door import Door, ExperimentsDoor
from tenuto.services.gateway.http.context import answer, asking
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.trials.adapters.records import Records

router = APIRouter(tags=["experiments"], route_class=StrictRoute)


@router.post("/experiments/{experiment_id}/operations", response_model=OperationsRecorded)
async def decide(door: Door, experiment_id: Annotated[int, Path(ge=1, le=2**62)], body: OperationsBody) -> Response:
    """Decisions of the class of a `custom` search on an event of its experiment. Sent again, or by a second process of the same
    search, it changes nothing: the answer is what was recorded first."""
    command_id = name_id("operations", str(experiment_id), str(body.cause_id))
    if (recorded := await door.log.find(derived_event_id("gateway", command_id, 0))) is not None:
        return _recorded(recorded)
    cause = await _cause(door, experiment_id, body.cause_id)
    submitted = await Records(door.log).submitted(experiment_id)
    if submitted is None:
        raise not_found(f"experiment {experiment_id}")
    _check(submitted.config, body)
    command = RequestOperations(
        id=command_id,
        time_us=door.clock.now_us(),
        user=asking(),
        experiment_id=experiment_id,
        searcher=body.searcher,
        cause_id=cause.id,
        cause_position=cause.position,
        operations=body.operations,
    )
    [event] = await door.carry_out(command)
    return _recorded(event)


async def _cause(door: ExperimentsDoor, experiment_id: int, cause_id: UUID) -> Event:
    cause = await door.log.find(cause_id)
    if cause is None or cause.correlation_id != str(experiment_id):
        raise DoorError("invalid", f"There is no event {cause_id} of experiment {experiment_id} to decide on.", "cause_id")
    return cause


def _check(config: ExperimentConfig, body: OperationsBody) -> None:
    """Raises DoorError with the path of what is wrong."""
    searcher = config.searcher
    if not isinstance(searcher, CustomSearcher):
        return  # refused for that, by the rules
    known = dict(leaves_by_path(config.hyperparameters))
    for index, operation in enumerate(body.operations):
        where = f"operations[{index}]"
        if isinstance(operation, Create):
            try:
                check_point(f"{where}.hyperparameters", flat(operation.hyperparameters, known), known)
            except ValueError as error:
                raise DoorError("invalid", f"{error}.", f"{where}.hyperparameters") from error
        longest = searcher.max_length.value
        if isinstance(operation, (Create, Extend)) and operation.length > longest:
            message = f"{where}.length is {operation.length}, but searcher.max_length is {longest} {searcher.max_length.unit}."
            raise DoorError("invalid", message, f"{where}.length")


def _recorded(event: Event) -> Response:
    assert isinstance(event.data, SearchOperationsRequested)
    return answer(OperationsRecorded(position=event.position, searcher=event.data.searcher, operations=event.data.operations))
