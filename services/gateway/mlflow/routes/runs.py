"""MLflow's requests about runs: start and end, what they log, and how they are found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tenuto.schemas.events.unmanaged import UnmanagedState, UnmanagedTrialStarted
from tenuto.services.gateway.experiments.commands import ChangeUnmanagedTrial, StartUnmanagedTrial
from tenuto.services.gateway.http.context import asked
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.mlflow import bodies
from tenuto.services.gateway.mlflow.adapters.run_data import Pair
from tenuto.services.gateway.mlflow.adapters.run_models import ModelPoint
from tenuto.services.gateway.mlflow.door import Door, MlflowDoor
from tenuto.services.gateway.mlflow.handling import answers
from tenuto.services.gateway.mlflow.handling.access import (
    API,
    asked_once,
    check_creates,
    experiment_number,
    find_model,
    find_run,
    model_to_change,
    offset_of,
    run_to_change,
)
from tenuto.services.gateway.mlflow.policies.run_filters import OF_RUNS, conditions, orders
from tenuto.services.gateway.mlflow.queries.runs import HISTORY_MAX, RUNS_MAX, RunRow
from tenuto.services.gateway.mlflow.routes.experiments import IdempotencyKey, default_experiment

router = APIRouter(include_in_schema=False)
RUN_NAME = "mlflow.runName"
MODEL_HISTORY = "mlflow.log-model.history"
STATES: dict[bodies.Status, UnmanagedState] = {
    "SCHEDULED": "queued",
    "RUNNING": "running",
    "FINISHED": "completed",
    "FAILED": "failed",
    "KILLED": "canceled",
}
RunId = Annotated[str, Query(max_length=300)]


@router.post(f"{API}/runs/create")
async def create(request: Request, door: Door, idempotency_key: IdempotencyKey = "") -> Response:
    check_creates(door, request)
    body = await bodies.read(request, bodies.CreateRun)
    number = experiment_number(door, body.experiment_id)
    if number is None:
        number = await default_experiment(door)
    tags = {tag.key: tag.pair for tag in body.tags}
    name = body.run_name or (tags[RUN_NAME].text if RUN_NAME in tags else "")
    started_us = door.clock.now_us() if body.start_time is None else body.start_time * 1000
    command = StartUnmanagedTrial(
        **asked_once(door, "unmanaged run", idempotency_key), experiment_id=number, name=name[:500], started_us=started_us
    )
    started = (await door.carry_out(command))[0].data
    assert isinstance(started, UnmanagedTrialStarted)
    if started.experiment_id != number:
        raise DoorError("conflict", f"This Idempotency-Key was used for run {started.trial_id}, which is in another experiment.")
    tags[RUN_NAME] = Pair(RUN_NAME, name or f"run {started.trial_id}")
    await door.run_data.log((started.experiment_id, started.trial_number), tags=list(tags.values()))
    return await _told(door, await find_run(door, started.trial_id))


@router.get(f"{API}/runs/get")
async def get(door: Door, run_id: RunId = "", run_uuid: RunId = "") -> Response:
    return await _told(door, await find_run(door, bodies.checked_run(run_id or run_uuid)))


async def _told(door: MlflowDoor, found: RunRow) -> Response:
    details = await door.runs.details([found])
    return answers.answer({"run": answers.run(found, details[found.key])})


@router.post(f"{API}/runs/update")
async def update(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.UpdateRun)
    run = await run_to_change(door, request, body.run_id)
    if body.run_name:
        await door.run_data.log(run.key, tags=[Pair(RUN_NAME, body.run_name)])
    ended_us = None if body.end_time is None else body.end_time * 1000
    if body.status in ("RUNNING", "SCHEDULED"):
        ended_us = None
    elif body.status is not None and ended_us is None:
        ended_us = door.clock.now_us()
    state = STATES[body.status] if body.status else STATES[run.status]  # type: ignore[index]
    if body.status is not None and (state, ended_us) != (run.state, run.ended_us):
        await _change(door, run, state, ended_us, deleted=False)
    return answers.answer({"run_info": answers.run_info(await find_run(door, body.run_id))})


async def _change(door: MlflowDoor, run: RunRow, state: UnmanagedState, ended_us: int | None, *, deleted: bool) -> None:
    command = ChangeUnmanagedTrial(
        **asked(door), experiment_id=run.experiment_id, trial_id=run.trial_id, state=state, ended_us=ended_us, deleted=deleted
    )
    await door.carry_out(command)


@router.post(f"{API}/runs/delete")
async def delete(request: Request, door: Door) -> Response:
    return await _mark(request, door, deleted=True)


@router.post(f"{API}/runs/restore")
async def restore(request: Request, door: Door) -> Response:
    return await _mark(request, door, deleted=False)


async def _mark(request: Request, door: MlflowDoor, *, deleted: bool) -> Response:
    body = await bodies.read(request, bodies.OfRun)
    run = await run_to_change(door, request, body.run_id, deleted=True)
    if run.deleted != deleted:
        await _change(door, run, STATES[run.status], run.ended_us, deleted=deleted)  # type: ignore[index]
    return answers.answer()


@router.post(f"{API}/runs/log-metric")
async def log_metric(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.LogMetric)
    run = await run_to_change(door, request, body.run_id)
    await door.run_data.log(run.key, [body.point], of_models=await _of_models(door, request, run, [body]))
    return answers.answer()


@router.post(f"{API}/runs/log-parameter")
async def log_parameter(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.LogParameter)
    run = await run_to_change(door, request, body.run_id)
    await door.run_data.log(run.key, parameters=[body.pair])
    return answers.answer()


@router.post(f"{API}/runs/log-batch")
async def log_batch(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.LogBatch)
    run = await run_to_change(door, request, body.run_id)
    points = [metric.point for metric in body.metrics]
    of_models = await _of_models(door, request, run, body.metrics)
    await door.run_data.log(run.key, points, [item.pair for item in body.params], [tag.pair for tag in body.tags], of_models)
    return answers.answer()


async def _of_models(door: MlflowDoor, request: Request, run: RunRow, metrics: Sequence[bodies.Metric]) -> list[ModelPoint]:
    """Points of the metrics that are about logged models. Raises DoorError if the sender may not change one of these models."""
    about = [item for item in metrics if item.model_id]
    for model_id in sorted({item.model_id or "" for item in about}):
        await model_to_change(door, request, model_id)
    return [item.of_model(run.trial_id) for item in about]


@router.post(f"{API}/runs/log-model")
async def log_model(request: Request, door: Door) -> Response:
    """Records a model of an MLflow 2 client, whose files are among the run's artifacts, in the tag in which MLflow keeps it."""
    body = await bodies.read(request, bodies.LogModel)
    run = await run_to_change(door, request, body.run_id)
    known = dict((await door.runs.details([run]))[run.key].tags).get(MODEL_HISTORY, "[]")
    try:
        history = [*json.loads(known), json.loads(body.model_json)]
    except (ValueError, TypeError) as error:
        raise DoorError("invalid", f"model_json, or the tag {MODEL_HISTORY} of the run, is not the JSON of a model.") from error
    text = json.dumps(history, separators=(",", ":"))
    while len(text) > bodies.TAG_CHARACTERS_MAX and len(history) > 1:
        text = json.dumps(history := history[1:], separators=(",", ":"))
    await door.run_data.log(run.key, tags=[Pair(MODEL_HISTORY, text)])
    return answers.answer()


@router.post(f"{API}/runs/set-tag")
async def set_tag(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.SetTag)
    run = await run_to_change(door, request, body.run_id)
    await door.run_data.log(run.key, tags=[body.pair])
    return answers.answer()


@router.post(f"{API}/runs/delete-tag")
async def delete_tag(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.DeleteTag)
    run = await run_to_change(door, request, body.run_id)
    if not await door.run_data.delete_tag(run.key, body.key):
        raise DoorError("not_found", f"Run {body.run_id} has no tag {body.key!r}.")
    return answers.answer()


@router.post(f"{API}/runs/log-inputs")
async def log_inputs(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.LogInputs)
    run = await run_to_change(door, request, body.run_id)
    texts = [item.model_dump_json(by_alias=True, exclude_none=True) for item in body.datasets]
    for model in body.models:
        await find_model(door, model.model_id)
    await door.run_data.add_inputs(run.key, [Pair(hashlib.sha256(text.encode()).hexdigest(), text) for text in texts])
    await door.run_models.use(run.key, [(model.model_id, 0) for model in body.models], output=False)
    return answers.answer()


@router.post(f"{API}/runs/search")
async def search(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.SearchRuns)
    given, order = conditions(body.filter, OF_RUNS), orders(body.order_by, OF_RUNS)
    numbers = [experiment_number(door, item) for item in body.experiment_ids]
    limit, offset = min(body.max_results, RUNS_MAX), offset_of(body.page_token)
    known = [number for number in numbers if number is not None]
    hidden = sorted(door.sight().hidden)  # a token that sees nothing was refused before
    found, more = await door.runs.search(known, given, order, body.run_view_type, limit, offset, hidden)
    shown = {"runs": [answers.run(run, details) for run, details in found]}
    return answers.answer({**shown, "next_page_token": str(offset + len(found))} if more else shown)


@router.get(f"{API}/metrics/get-history")
async def get_history(
    door: Door,
    metric_key: Annotated[str, Query(max_length=bodies.NAME_CHARACTERS_MAX)],
    run_id: RunId = "",
    run_uuid: RunId = "",
    max_results: Annotated[int, Query(ge=1, le=HISTORY_MAX)] = HISTORY_MAX,
    page_token: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    run = await find_run(door, bodies.checked_run(run_id or run_uuid))
    offset = offset_of(page_token)
    points = await door.runs.history(run, metric_key, max_results, offset)
    shown = {"metrics": [answers.metric(metric_key, *point) for point in points]}
    return answers.answer({**shown, "next_page_token": str(offset + max_results)} if len(points) == max_results else shown)
