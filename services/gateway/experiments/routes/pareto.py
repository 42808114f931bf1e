"""The Pareto front of a search with several metrics."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from tenuto.services.gateway.experiments.door import Door
from tenuto.services.gateway.experiments.handling.past import At, views_at
from tenuto.services.gateway.experiments.handling.paths import ExperimentId
from tenuto.services.gateway.experiments.queries.experiments import ExperimentQueries
from tenuto.services.gateway.experiments.views import ExperimentDetail
from tenuto.services.gateway.http.context import answer
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.trials.policies.pareto import Goal, front
from tenuto.services.gateway.trials.views import ComparedTrialView, FrontTrialView, GoalView, ParetoView

router = APIRouter(tags=["trials"], route_class=StrictRoute)


class ParetoQuery(BaseModel):
    model_config = ConfigDict(frozen=True)

    at: At = None
    second: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Metric that is compared beside the search's own, in place of its objectives. Any search has such a front.",
    )
    second_smaller_is_better: bool = True
    all: bool = Field(default=False, description="With the values of all compared trials, in `trials`.")


@router.get("/experiments/{experiment_id}/pareto", response_model=ParetoView)
async def pareto(door: Door, experiment_id: ExperimentId, query: Annotated[ParetoQuery, Query()]) -> Response:
    """The Pareto front of a search: the trials that no other one beats in all of its metrics (`nsga2`), or in its metric and
    `second`."""
    async with views_at(door, experiment_id, query.at) as views:
        return await _answered(views, experiment_id, query)


async def _answered(views: ExperimentQueries, experiment_id: int, query: ParetoQuery) -> Response:
    found = await views.experiment(experiment_id)
    if found is None:
        raise not_found(f"experiment {experiment_id}")
    goals = [Goal(found.metric, found.smaller_is_better), *_others(found, query)]
    compared = await views.measured_in(experiment_id, [goal.metric for goal in goals])
    best = await asyncio.to_thread(front, goals, compared)
    trials = await views.trials_numbered(experiment_id, [one.number for one in best])
    numbers = {one.number for one in best}
    view = ParetoView(
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
        trials=tuple(
            ComparedTrialView(trial_id=f"{experiment_id}-{one.number}", values=one.values, on_front=one.number in numbers)
            for one in (compared if query.all else ())
        ),
    )
    return answer(view)


def _others(found: ExperimentDetail, query: ParetoQuery) -> list[Goal]:
    """Goals beside the search's metric. Raises DoorError."""
    if query.second is not None:
        return [Goal(query.second, query.second_smaller_is_better)]
    objectives = found.config.get("searcher", {}).get("objectives")  # of unmanaged runs there is no searcher
    if not objectives:
        message = f"Experiment {found.id} compares {found.metric} only: a Pareto front needs searcher.objectives (nsga2)."
        raise DoorError("conflict", message)
    return [Goal(objective["metric"], objective["smaller_is_better"]) for objective in objectives]
