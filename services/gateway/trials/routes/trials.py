"""Trials: state, metrics, validations, logs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tenuto.services.gateway.http.context import answer
from tenuto.services.gateway.http.errors import not_found
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.read_models.common import numbers
from tenuto.services.gateway.read_models.decision_rows import POINTS_MAX
from tenuto.services.gateway.trials.door import Door, TrialsDoor
from tenuto.services.gateway.trials.handling.listing import LogQuery, onward_by_batches
from tenuto.services.gateway.trials.handling.paths import TrialId
from tenuto.services.gateway.trials.views import LogLineView, MetricPointView, TrialView, ValidationView

router = APIRouter(tags=["trials"], route_class=StrictRoute)
Points = Annotated[int, Query(ge=1, le=POINTS_MAX)]


@router.get("/trials/{trial_id}", response_model=TrialView)
async def describe(door: Door, trial_id: TrialId) -> Response:
    return answer(await _trial(door, trial_id))


@router.get("/trials/{trial_id}/metrics", response_model=list[MetricPointView])
async def metrics(
    request: Request,
    door: Door,
    trial_id: TrialId,
    after: Annotated[int, Query(ge=-1, le=2**62, description="Only points at more batches.")] = -1,
    limit: Points = POINTS_MAX,
) -> Response:
    """Training metrics."""
    experiment_id, number = numbers(trial_id)
    rows = await door.views.points(experiment_id, number, (number, after), limit)
    return answer(rows, headers=onward_by_batches(request, rows, trial=False)) if rows else await _empty(door, trial_id)


@router.get("/trials/{trial_id}/validations", response_model=list[ValidationView])
async def validations(
    request: Request,
    door: Door,
    trial_id: TrialId,
    after: Annotated[int, Query(ge=-1, le=2**62, description="Only validations at more batches.")] = -1,
    limit: Points = POINTS_MAX,
) -> Response:
    experiment_id, number = numbers(trial_id)
    rows = await door.views.validations(experiment_id, number, (number, after), limit)
    return answer(rows, headers=onward_by_batches(request, rows, trial=False)) if rows else await _empty(door, trial_id)


@router.get("/trials/{trial_id}/logs", response_model=list[LogLineView])
async def logs(request: Request, door: Door, trial_id: TrialId, query: Annotated[LogQuery, Query()]) -> Response:
    """Log lines in the order of arrival; with `tail` the last ones. A search (`text`, `rank`, `level`) looks at 10,000 lines at
    once: `Link` goes on, also where none of them was found."""
    rows = await door.views.lines(*numbers(trial_id), query.after, query.limit, query.tail, query.search())
    if not rows:
        await _trial(door, trial_id)
    return answer(rows, headers=query.onward(request, rows))


async def _trial(door: TrialsDoor, trial_id: str) -> TrialView:
    found = await door.views.trial(trial_id)
    if found is None:
        raise not_found(f"trial {trial_id}")
    return found


async def _empty(door: TrialsDoor, trial_id: str) -> Response:
    await _trial(door, trial_id)
    return answer([])
