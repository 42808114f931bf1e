"""Experiments: submit, look at, pause, resume, cancel, kill, change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from tenuto.kernel import telemetry
from tenuto.schemas.config import rungs
from tenuto.schemas.sentences import sentence_of
from tenuto.services.gateway.experiments.bodies import ChangeBody, Submitted
from tenuto.services.gateway.experiments.commands import (
    CancelExperiment,
    ChangeExperiment,
    ExperimentCommand,
    PauseExperiment,
    ResumeExperiment,
    SubmitExperiment,
)
from tenuto.services.gateway.experiments.door import Door, ExperimentsDoor
from tenuto.services.gateway.experiments.examples import CONFIG
from tenuto.services.gateway.experiments.handling.listing import ExperimentQuery
from tenuto.services.gateway.experiments.handling.past import At, views_at
from tenuto.services.gateway.experiments.handling.paths import ExperimentId
from tenuto.services.gateway.experiments.handling.submission import receive
from tenuto.services.gateway.experiments.handling.submitting import check_place, submitted
from tenuto.services.gateway.experiments.handling.warm_start import with_source
from tenuto.services.gateway.experiments.policies.wall_time import limit_of
from tenuto.services.gateway.experiments.state import Live
from tenuto.services.gateway.experiments.views import ExperimentDetail, ExperimentView
from tenuto.services.gateway.http.context import answer, asked, once, written
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.paging import Cursor, next_page, total
from tenuto.services.gateway.http.paths import Key
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.people.handling.secrets import with_owner
from tenuto.services.gateway.read_models.decision_rows import PAGE_MAX, POINTS_MAX
from tenuto.services.gateway.trials.adapters.records import Records
from tenuto.services.gateway.trials.bodies import Done
from tenuto.services.gateway.trials.handling.listing import (
    AfterBatches,
    AfterTrial,
    LogQuery,
    behind_checkpoint,
    onward_by_batches,
    onward_of_checkpoints,
)
from tenuto.services.gateway.trials.handling.stores import check_store
from tenuto.services.gateway.trials.views import CheckpointView, LogLineView, MetricPointView, TrialView, ValidationView

router = APIRouter(tags=["experiments"], route_class=StrictRoute)
WORKERS_MAX = 100
"""Most workers named in an answer of those that something waits for."""
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
Points = Annotated[int, Query(ge=1, le=POINTS_MAX)]
_SUBMISSION: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["config", "context"],
                    "properties": {
                        "config": {"type": "string", "description": "The configuration, YAML or JSON.", "example": CONFIG},
                        "context": {"type": "string", "format": "binary", "description": "The model directory, tar.gz."},
                        "origin": {"type": "string", "description": "Optional. Command line, overrides and git state, JSON."},
                    },
                }
            }
        },
    }
}


@router.post("/experiments", status_code=201, response_model=Submitted, openapi_extra=_SUBMISSION)
async def submit(
    request: Request,
    door: Door,
    idempotency_key: Key = "",
) -> Response:
    """Submit an experiment. The same `Idempotency-Key` again gives the same experiment, not a second one."""
    submission = await receive(request, door)
    resolved = submission.resolved
    check_place(door, resolved.config)
    await check_store(door, resolved.config)
    config, context = await with_owner(door.secrets, await with_source(door, resolved.config)), submission.context
    seed = config.reproducibility.experiment_seed
    with telemetry.span("gateway submit", parent=request.headers.get("traceparent", "")) as trace:
        command = SubmitExperiment(
            **asked(door, idempotency_key),
            config=config,
            seed=door.clock.new_seed() if seed is None else seed,
            context_hash=context.context_hash,
            context_size_bytes=context.size_bytes,
            origin=submission.origin,
            trace=trace,
            layers=resolved.layers,
            sent_hash=resolved.sent_hash,
        )
        return await submitted(door, command, resolved.notes)


@router.get("/experiments", response_model=list[ExperimentView])
async def list_experiments(request: Request, door: Door, query: Annotated[ExperimentQuery, Query()]) -> Response:
    """The newest first, or as `sort` and `order` say."""
    search = query.search(door.sight().hidden)
    found, place = await door.views.experiments(search, query.limit)
    count = await door.views.count_experiments(search) if query.total else None
    onward = next_page(request, cursor=query.cursor_of(place)) if place is not None else {}
    return written(found, headers={**onward, **total(count)})


@router.get("/experiments/{experiment_id}", response_model=ExperimentDetail)
async def describe(door: Door, experiment_id: ExperimentId, at: At = None) -> Response:
    """The experiment, now or at an earlier moment."""
    async with views_at(door, experiment_id, at) as views:
        found = await views.experiment(experiment_id)
    if found is None:
        raise not_found(f"experiment {experiment_id}")
    submitted = await Records(door.log).submitted(experiment_id)
    if submitted is not None and (parent := submitted.parent) is not None:
        origin = parent.trial_id or str(parent.experiment_id)
        found = found.model_copy(update={"relation": parent.relation, "parent_id": origin})
    if submitted is not None:
        told = rungs.told(submitted.config, found.max_trials)
        found = found.model_copy(update={"layers": submitted.layers, "rungs": told})
    live = door.state.live.get(experiment_id) if at is None else None
    canceled = found.state == "canceled" or (found.state == "canceling" if live is None else live.canceled)
    if canceled:
        reached = await Records(door.log).time_limit_reached(experiment_id)
        known = reached is not None and (at is None or reached.position <= at)
        found = found.model_copy(update={"canceled_because": sentence_of(reached) if reached is not None and known else ""})
    if at is not None:
        [event] = await door.log.read(at - 1, 1, upto=at)
        found = found.model_copy(update={"as_of_us": event.time_us})
    return answer(found.model_copy(update=_wall_time(door, live)))


def _wall_time(door: ExperimentsDoor, live: Live | None) -> dict[str, Any]:
    if live is None:
        return {}
    limit = limit_of(door.state.access, live)
    return {
        "wall_hours_max": None if limit is None else limit.hours,
        "wall_seconds": live.wall_us / 1e6,
        "wall_since_us": live.wall_since_us if live.allocations else None,
    }


@router.get("/experiments/{experiment_id}/trials", response_model=list[TrialView])
async def trials(
    request: Request,
    door: Door,
    experiment_id: ExperimentId,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="Only trials with a larger number.")] = 0,
    limit: Limit = PAGE_MAX,
    at: At = None,
) -> Response:
    async with views_at(door, experiment_id, at) as views:
        found = await views.trials(experiment_id, after, limit)
    if at is not None:  # it ends now: the silence at that moment was another
        found = [trial.model_copy(update={"silent_seconds": None}) for trial in found]
    return await _of(door, experiment_id, found, next_page(request, after=found[-1].number) if len(found) == limit else {})


@router.get("/experiments/{experiment_id}/metrics", response_model=list[MetricPointView])
async def metrics(
    request: Request,
    door: Door,
    experiment_id: ExperimentId,
    limit: Points = POINTS_MAX,
    after_trial: AfterTrial = 0,
    after_batches: AfterBatches = -1,
) -> Response:
    """Training metrics of all trials, by trial and batches."""
    rows = await door.views.points(experiment_id, None, (after_trial, after_batches), limit)
    return await _of(door, experiment_id, rows, onward_by_batches(request, rows, trial=True))


@router.get("/experiments/{experiment_id}/validations", response_model=list[ValidationView])
async def validations(
    request: Request,
    door: Door,
    experiment_id: ExperimentId,
    limit: Points = POINTS_MAX,
    after_trial: AfterTrial = 0,
    after_batches: AfterBatches = -1,
    at: At = None,
) -> Response:
    """Validation metrics of all trials, by trial and batches."""
    async with views_at(door, experiment_id, at) as views:
        rows = await views.validations(experiment_id, None, (after_trial, after_batches), limit)
    return await _of(door, experiment_id, rows, onward_by_batches(request, rows, trial=True))


@router.get("/experiments/{experiment_id}/logs", response_model=list[LogLineView])
async def logs(request: Request, door: Door, experiment_id: ExperimentId, query: Annotated[LogQuery, Query()]) -> Response:
    """Log lines of all trials in the order of arrival; with `tail` the last ones. A search (`text`, `rank`, `level`) looks at
    10,000 lines at once: `Link` goes on, also where none of them was found."""
    rows = await door.views.lines(experiment_id, None, query.after, query.limit, query.tail, query.search())
    return await _of(door, experiment_id, rows, query.onward(request, rows))


@router.get("/experiments/{experiment_id}/checkpoints", response_model=list[CheckpointView])
async def checkpoints(
    request: Request,
    door: Door,
    experiment_id: ExperimentId,
    deleted: bool = False,
    limit: Points = POINTS_MAX,
    cursor: Cursor = None,
) -> Response:
    rows = await door.views.checkpoints(experiment_id, deleted, limit, behind=behind_checkpoint(cursor))
    return await _of(door, experiment_id, rows, onward_of_checkpoints(request, rows))


async def _of(door: ExperimentsDoor, experiment_id: int, rows: Any, headers: Mapping[str, str] | None = None) -> Response:
    if not rows and not await door.views.exists(experiment_id):
        raise not_found(f"experiment {experiment_id}")
    return answer(rows, headers=headers)


@router.post("/experiments/{experiment_id}/pause", response_model=Done)
async def pause(door: Door, experiment_id: ExperimentId, key: Key = "") -> Response:
    """Pause the experiment: its workers save a checkpoint and leave, and no trial starts until it is resumed."""
    return await _end_workers(door, PauseExperiment(**once(door, "pause", experiment_id, key)))


@router.post("/experiments/{experiment_id}/resume", response_model=Done)
async def resume(door: Door, experiment_id: ExperimentId, key: Key = "") -> Response:
    return await _ask(door, ResumeExperiment(**once(door, "resume", experiment_id, key)))


@router.post("/experiments/{experiment_id}/cancel", response_model=Done)
async def cancel(door: Door, experiment_id: ExperimentId, key: Key = "") -> Response:
    """End it; workers save a checkpoint first."""
    return await _end_workers(door, CancelExperiment(**once(door, "cancel", experiment_id, key)))


@router.post("/experiments/{experiment_id}/kill", response_model=Done)
async def kill(door: Door, experiment_id: ExperimentId, key: Key = "") -> Response:
    """End it now, without checkpoints."""
    return await _end_workers(
        door,
        CancelExperiment(**once(door, "kill", experiment_id, key), kill=True),
        grace_seconds=0.0,
    )


@router.patch("/experiments/{experiment_id}", response_model=Done)
async def change(door: Door, experiment_id: ExperimentId, body: ChangeBody, key: Key = "") -> Response:
    given = body.model_fields_set
    for name in ("priority", "weight"):
        if name in given and getattr(body, name) is None:
            raise DoorError("invalid", f"{name} must be a number.", name)
    command = ChangeExperiment(
        **once(door, "change", experiment_id, key),
        priority="keep" if body.priority is None else body.priority,
        weight="keep" if body.weight is None else body.weight,
        max_slots=body.max_slots if "max_slots" in given else "keep",
        max_wall_hours=body.max_wall_hours if "max_wall_hours" in given else "keep",
        pool=body.pool or "",
        max_trials=body.max_trials,
        max_concurrent_trials=body.max_concurrent_trials,
    )
    return await _ask(door, command)


async def _end_workers(door: ExperimentsDoor, command: ExperimentCommand, grace_seconds: float | None = None) -> Response:
    """Carries out the command; the answer lists workers that must exit, and the time at which the rest is killed."""
    if grace_seconds is None:
        grace_seconds = door.settings.preempt_grace_seconds_max
    events = await door.carry_out(command)
    waits_for = tuple(await door.views.workers(command.experiment_id, WORKERS_MAX))
    killed_at_us = door.clock.now_us() + round(grace_seconds * 1e6) if waits_for else None
    return answer(Done(id=command.experiment_id, changed=bool(events), waits_for=waits_for, killed_at_us=killed_at_us))


async def _ask(door: ExperimentsDoor, command: ExperimentCommand) -> Response:
    events = await door.carry_out(command)
    return answer(Done(id=command.experiment_id, changed=bool(events)))
