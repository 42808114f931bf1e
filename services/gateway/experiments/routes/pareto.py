"""The Pareto front of a search with several metrics."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from tenuto.services.gateway.experiments.door import Door
from tenuto.services.gateway.experiments.handling.past import At, views_at
from tenuto.services.gateway.experiments.handling.paths import ExperimentId
from tenuto.services.gateway.experiments.queries.experiments import ExperimentQueries
from tenuto.services.gateway.http.context import answer
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.trials.policies.pareto import Goal, front
from tenuto.services.gateway.trials.views import FrontTrialView, GoalView, ParetoView

router = APIRouter(tags=["trials"], route_class=StrictRoute)


@router.get("/experiments/{experiment_id}/pareto", response_model=ParetoView)
async def pareto(door: Door, experiment_id: ExperimentId, at: At = None) -> Response:
    """The Pareto front of a search with several metrics (`nsga2`): the trials that no other one beats in all of them."""
    async with views_at(door, experiment_id, at) as views:
        return await _answered(views, experiment_id)


async def _answered(views: ExperimentQueries, experiment_id: int) -> Response:
    found = await views.experiment(experiment_id)
    if found is None:
        raise not_found(f"experiment {experiment_id}")
    searcher = found.config.get("searcher", {})  # of unmanaged runs there is none
    if not searcher.get("objectives"):
        message = f"Experiment {experiment_id} compares {found.metric} only: a Pareto front needs searcher.objectives (nsga2)."
        raise DoorError("conflict", message)
    goals = [Goal(found.metric, found.smaller_is_better)]
    goals += [Goal(objective["metric"], objective["smaller_is_better"]) for objective in searcher["objectives"]]
    compared = await views.measured_in(experiment_id, [goal.metric for goal in goals])
    best = await asyncio.to_thread(front, goals, compared)
    trials = await views.trials_numbered(experiment_id, [one.number for one in best])
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
