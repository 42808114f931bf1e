"""MLflow's requests about experiments."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from tenuto.schemas.events.request import Description
from tenuto.schemas.events.unmanaged import UnmanagedExperimentCreated
from tenuto.services.gateway.experiments.commands import (
    ArchiveExperiment,
    CreateUnmanagedExperiment,
    DescribeExperiment,
    UnarchiveExperiment,
)
from tenuto.services.gateway.http.context import asked
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.mlflow import bodies
from tenuto.services.gateway.mlflow.adapters.run_data import Pair
from tenuto.services.gateway.mlflow.door import Door, MlflowDoor
from tenuto.services.gateway.mlflow.handling import answers
from tenuto.services.gateway.mlflow.handling.access import (
    API,
    DEFAULT,
    asked_once,
    check_creates,
    experiment_number,
    experiment_to_change,
    no_experiment,
    offset_of,
)
from tenuto.services.gateway.mlflow.policies.run_filters import OF_EXPERIMENTS, conditions, orders
from tenuto.services.gateway.mlflow.queries.runs import EXPERIMENTS_MAX
from tenuto.services.gateway.rights.access import DEFAULT as WORKSPACE
from tenuto.services.gateway.rights.permissions import CREATES_EXPERIMENT, refusal

router = APIRouter(include_in_schema=False)
KEY_CHARACTERS_MAX = 200
IdempotencyKey = Annotated[str, Header(max_length=KEY_CHARACTERS_MAX)]


@router.post(f"{API}/experiments/create")
async def create(request: Request, door: Door, idempotency_key: IdempotencyKey = "") -> Response:
    check_creates(door, request)
    body = await bodies.read(request, bodies.CreateExperiment)
    if body.artifact_location:
        raise DoorError("invalid", "artifact_location cannot be chosen: artifacts are kept by Tenuto; leave it out.")
    events = await door.carry_out(
        CreateUnmanagedExperiment(**asked_once(door, "unmanaged experiment", idempotency_key), name=body.name)
    )
    created = events[0].data
    assert isinstance(created, UnmanagedExperimentCreated)
    if created.name != body.name:
        raise DoorError(
            "conflict", f"This Idempotency-Key was used for experiment {created.experiment_id}, which has another name."
        )
    if body.tags:
        await door.run_data.log((created.experiment_id, 0), tags=[tag.pair for tag in body.tags])
    return answers.answer({"experiment_id": str(created.experiment_id)})


async def default_experiment(door: MlflowDoor) -> int:
    """Id of the default experiment, which is created when it is first needed. Raises DoorError."""
    if why := refusal(door.state.access, door.subject(), CREATES_EXPERIMENT, workspace=WORKSPACE):
        raise DoorError("forbidden", why)
    await door.carry_out(CreateUnmanagedExperiment(**asked(door), name=DEFAULT, or_existing=True))
    found = door.state.unmanaged_named(DEFAULT)
    assert found is not None
    return found


@router.get(f"{API}/experiments/get")
async def get(door: Door, experiment_id: Annotated[str, Query(max_length=20)]) -> Response:
    number = experiment_number(door, bodies.checked_experiment(experiment_id))
    return await _told(door, await default_experiment(door) if number is None else number)


@router.get(f"{API}/experiments/get-by-name")
async def get_by_name(door: Door, experiment_name: Annotated[str, Query(max_length=500)]) -> Response:
    number = door.state.unmanaged_named(experiment_name)
    if number is None:
        raise DoorError("not_found", f"There is no experiment of unmanaged runs named {experiment_name!r}.")
    return await _told(door, number)


async def _told(door: MlflowDoor, number: int) -> Response:
    await door.check_seen(number)
    found = await door.runs.experiment(number)
    if found is None:
        raise no_experiment(number)
    tags = await door.runs.experiment_tags([number])
    return answers.answer({"experiment": answers.experiment(found, tags[number])})


@router.post(f"{API}/experiments/search")
async def search(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.SearchExperiments)
    given, order = conditions(body.filter, OF_EXPERIMENTS), orders(body.order_by, OF_EXPERIMENTS)
    limit, offset = min(body.max_results, EXPERIMENTS_MAX), offset_of(body.page_token)
    seen = door.sight()
    hidden = sorted(seen.hidden)
    found = [] if seen.nothing else await door.runs.experiments(given, order, body.view_type, limit, offset, hidden)
    tags = await door.runs.experiment_tags([row.experiment_id for row in found])
    shown = {"experiments": [answers.experiment(row, tags[row.experiment_id]) for row in found]}
    return answers.answer({**shown, "next_page_token": str(offset + limit)} if len(found) == limit else shown)


@router.post(f"{API}/experiments/update")
async def update(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.UpdateExperiment)
    number, of_record = await _record(request, door, body)
    if door.state.unmanaged[number].name != body.new_name:
        await door.carry_out(DescribeExperiment(**of_record, description=Description(name=body.new_name)))
    return answers.answer()


@router.post(f"{API}/experiments/delete")
async def delete(request: Request, door: Door) -> Response:
    """Archives it: nothing is lost, and its name stays taken."""
    _, of_record = await _record(request, door, await bodies.read(request, bodies.OfExperiment))
    await door.carry_out(ArchiveExperiment(**of_record))
    return answers.answer()


@router.post(f"{API}/experiments/restore")
async def restore(request: Request, door: Door) -> Response:
    _, of_record = await _record(request, door, await bodies.read(request, bodies.OfExperiment))
    await door.carry_out(UnarchiveExperiment(**of_record))
    return answers.answer()


async def _record(request: Request, door: MlflowDoor, body: bodies.OfExperiment) -> tuple[int, dict[str, Any]]:
    """The experiment, and the fields of a command about its record. Raises DoorError."""
    number = await experiment_to_change(door, request, experiment_number(door, body.experiment_id) or 0)
    return number, {
        **asked(door),
        "experiment_id": number,
        "submitter": door.state.unmanaged[number].user,
        "workspace": WORKSPACE,
    }


@router.post(f"{API}/experiments/set-experiment-tag")
async def set_tag(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.SetExperimentTag)
    number = await experiment_to_change(door, request, experiment_number(door, body.experiment_id) or 0)
    await door.run_data.log((number, 0), tags=[Pair(body.key, body.value)])
    return answers.answer()


@router.post(f"{API}/experiments/delete-experiment-tag")
async def delete_tag(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.DeleteExperimentTag)
    number = await experiment_to_change(door, request, experiment_number(door, body.experiment_id) or 0)
    if not await door.run_data.delete_tag((number, 0), body.key):
        raise DoorError("not_found", f"Experiment {number} has no tag {body.key!r}.")
    return answers.answer()
