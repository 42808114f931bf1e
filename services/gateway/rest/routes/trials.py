"""Trials: state, metrics, validations, logs."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from tenuto.services.gateway.policies.pareto import Goal, front
from tenuto.services.gateway.projections.common import TRIAL_ID, numbers
from tenuto.services.gateway.projections.queries import POINTS_MAX
from tenuto.services.gateway.projections.views import (
    FrontTrialView,
    GoalView,
    LogLineView,
    MetricPointView,
    ParetoView,
    TrialView,
    ValidationView,
)
from tenuto.services.gateway.rest.context import Door, Gateway, answer
from tenuto.services.gateway.rest.errors import DoorError, not_found
from tenuto.services.gateway.rest.listing import LogQuery, onward_by_batches
from tenuto.services.gateway.rest.strict import StrictRoute

router = APIRouter(tags=["trials"], route_class=StrictRoute)
TrialId = Annotated[str, Path(pattern=f"^{TRIAL_ID.pattern}$")]
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


@router.get("/experiments/{experiment_id}/pareto", response_model=ParetoView)
async def pareto(door: Door, experiment_id: Annotated[int, Path(ge=1, le=2**62)]) -> Response:
    """The Pareto front of a search with several metrics (`nsga2`): the trials that no other one beats in all of them."""
    found = await door.views.experiment(experiment_id)
    if found is None:
        raise not_found(f"experiment {experiment_id}")
    searcher = found.config.get("searcher", {})  # of unmanaged runs there is none
    if not searcher.get("objectives"):
        message = f"Experiment {experiment_id} compares {found.metric} only: a Pareto front needs searcher.objectives (nsga2)."
        raise DoorError("conflict", message)
    goals = [Goal(found.metric, found.smaller_is_better)]
    goals += [Goal(objective["metric"], objective["smaller_is_better"]) for objective in searcher["objectives"]]
    compared = await door.views.measured_in(experiment_id, [goal.metric for goal in goals])
    best = await asyncio.to_thread(front, goals, compared)
    trials = await door.views.trials_numbered(experiment_id, [one.number for one in best])
    return answer(
        ParetoView(
            goals=tuple(GoalView(metric=goal.metric, smaller_is_better=goal.smaller_is_better) for goal in goals),
            compared=len(compared),
            front=tuple(
                FrontTrialView(
                    trial_id=trials[one.number].id,
                    state=trials[one.number].state,
                    length=one.length,
                    values=dict(zip([goal.metric for goal in goals], one.values, strict=True)),
                    hyperparameters=trials[one.number].hyperparameters,
                )
                for one in best
            ),
        )
    )


async def _trial(door: Gateway, trial_id: str) -> TrialView:
    found = await door.views.trial(trial_id)
    if found is None:
        raise not_found(f"trial {trial_id}")
    return found


async def _empty(door: Gateway, trial_id: str) -> Response:
    await _trial(door, trial_id)
    return answer([])
