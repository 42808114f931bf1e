"""Pictures of a search at any moment: its rungs, its lineage, and the moments at which something changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from tenuto.schemas.base import from_object
from tenuto.services.gateway.experiments.door import Door, ExperimentsDoor
from tenuto.services.gateway.experiments.handling.past import At, check_past
from tenuto.services.gateway.experiments.handling.paths import ExperimentId
from tenuto.services.gateway.experiments.policies import search_decisions
from tenuto.services.gateway.experiments.policies.rung_table import RungStandings, rung_table
from tenuto.services.gateway.experiments.policies.search_decisions import Decision
from tenuto.services.gateway.experiments.policies.trial_lineage import Copy
from tenuto.services.gateway.experiments.policies.trial_lineage import lineage as lineage_of
from tenuto.services.gateway.experiments.views import (
    ChangedValueView,
    LineageTrialView,
    LineageView,
    MomentsView,
    RungsView,
    RungTrialView,
    RungView,
)
from tenuto.services.gateway.http.context import answer
from tenuto.services.gateway.http.errors import not_found
from tenuto.services.gateway.http.paging import next_page
from tenuto.services.gateway.http.strict_json import StrictRoute

router = APIRouter(tags=["experiments"], route_class=StrictRoute)
MOMENTS_MAX = 50_000
"""Most moments of one answer: about a megabyte, and more than a slider has places."""


@router.get("/experiments/{experiment_id}/rungs", response_model=RungsView)
async def rungs(door: Door, experiment_id: ExperimentId, at: At = None) -> Response:
    """The rungs of the search, with the trials that were compared there and what became of them, from the recorded reasons of
    its decisions. A search that compares at no rungs has none."""
    return answer(await asyncio.to_thread(_rungs, await _decisions(door, experiment_id, at)))


@router.get("/experiments/{experiment_id}/lineage", response_model=LineageView)
async def lineage(door: Door, experiment_id: ExperimentId, at: At = None) -> Response:
    """The trials in the order in which they were requested, each with the trial that it goes on from (population-based training),
    and with the hyperparameters that were changed."""
    return answer(await asyncio.to_thread(_lineage, await _decisions(door, experiment_id, at)))


@router.get("/experiments/{experiment_id}/moments", response_model=MomentsView)
async def moments(
    request: Request,
    door: Door,
    experiment_id: ExperimentId,
    of: Annotated[
        Literal["all", "decisions"], Query(description="`decisions`: only those at which the search decided about a trial.")
    ] = "all",
    after: Annotated[int, Query(ge=0, le=2**62, description="Position of the last one that you have.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOMENTS_MAX)] = MOMENTS_MAX,
) -> Response:
    """Positions of the log at which something changed in the experiment: those that `at` of the other reads is worth asking
    for."""
    types = search_decisions.TYPES if of == "decisions" else door.past.types
    found = await door.views.moments(experiment_id, types, after, limit)
    if not found and not await door.views.exists(experiment_id):
        raise not_found(f"experiment {experiment_id}")
    view = MomentsView(positions=[position for position, _ in found], times_us=[time_us for _, time_us in found])
    return answer(view, headers=next_page(request, after=found[-1][0]) if len(found) == limit else None)


async def _decisions(door: ExperimentsDoor, experiment_id: int, at: int | None) -> Sequence[Decision]:
    """Raises DoorError."""
    if at is not None:
        await check_past(door, experiment_id, at)
    elif not await door.views.exists(experiment_id):
        raise not_found(f"experiment {experiment_id}")
    return await door.decisions.upto(experiment_id, await door.log.head() if at is None else at)


def _rungs(decisions: Sequence[Decision]) -> RungsView:
    return RungsView(rungs=tuple(map(_rung, rung_table(decisions))))


def _rung(rung: RungStandings) -> RungView:
    return from_object(RungView, rung, trials=tuple(from_object(RungTrialView, standing) for standing in rung.standings.values()))


def _lineage(decisions: Sequence[Decision]) -> LineageView:
    return LineageView(trials=tuple(map(_lineage_trial, lineage_of(decisions))))


def _lineage_trial(copy: Copy) -> LineageTrialView:
    changed = tuple(from_object(ChangedValueView, change) for change in copy.changed)
    return from_object(
        LineageTrialView, copy, hyperparameters=dict(copy.hyperparameters), changed=changed, sentences=tuple(copy.sentences)
    )
