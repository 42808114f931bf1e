"""Data of the page's pictures and code browser; programs may ask for them, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Response

from tenuto.services.gateway.experiments.adapters.importance import TRIALS_MAX, NoImportance, logarithmic
from tenuto.services.gateway.experiments.door import Door, ExperimentsDoor
from tenuto.services.gateway.experiments.handling.paths import ExperimentId
from tenuto.services.gateway.experiments.views import (
    ContextFileContent,
    ContextFilesView,
    ContextFileView,
    ExperimentDetail,
    ImportancesView,
    ImportanceView,
    SparkView,
)
from tenuto.services.gateway.http.context import answer, asking
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.reader.context_files import NoContext

router = APIRouter(tags=["experiments"], route_class=StrictRoute)
SPARKS_MAX = 100
"""Experiments of one request: a page of a list."""
SPARK_POINTS_MAX = 40
"""A spark line is about so many pixels wide."""
PATH_CHARACTERS_MAX = 1_000
IDS_CHARACTERS_MAX = 2_000


@router.get("/experiments/{experiment_id}/importance", response_model=ImportancesView)
async def importance(door: Door, experiment_id: ExperimentId) -> Response:
    """Importance of the hyperparameters for the best metric of each trial, by fANOVA over a random forest. Takes seconds; of more
    than 1,000 trials some are compared, each time the same."""
    found = await _experiment(door, experiment_id)
    measured = await door.views.measured(experiment_id, TRIALS_MAX + 1)
    trials = measured[:TRIALS_MAX]
    try:
        told = await door.importances.of(trials, logarithmic(found.config.get("hyperparameters") or {}), asking())
    except NoImportance as error:
        raise DoorError(error.code, str(error)) from error
    return answer(
        ImportancesView(
            method="fanova",
            metric=found.metric,
            compared=len(trials),
            more=len(measured) > len(trials),
            importances=tuple(ImportanceView(name=name, importance=part) for name, part in told["importances"].items()),
            left_out=tuple(told["left_out"]),
        )
    )


@router.get("/experiments/{experiment_id}/files", response_model=ContextFilesView)
async def files(door: Door, experiment_id: ExperimentId) -> Response:
    """Files of the model directory that the experiment was submitted with."""
    found = await _experiment(door, experiment_id)
    try:
        listed = await door.reader.files(_archive(door, found), asking())
    except NoContext as error:
        raise _gone(found) from error
    views = tuple(ContextFileView(path=path, size_bytes=size) for path, size in listed["files"])
    return answer(ContextFilesView(context_hash=found.context_hash, files=views, more=listed["more"]))


@router.get("/experiments/{experiment_id}/files/content", response_model=ContextFileContent)
async def content(
    door: Door,
    experiment_id: ExperimentId,
    path: Annotated[str, Query(min_length=1, max_length=PATH_CHARACTERS_MAX, description="Such as `model_def.py`.")],
) -> Response:
    """One of these files, as text; of a larger one its first megabyte."""
    found = await _experiment(door, experiment_id)
    try:
        read = await door.reader.file(_archive(door, found), path, asking())
    except NoContext as error:
        raise _gone(found) from error
    if read is None:
        raise DoorError("not_found", f"There is no file {path} in the model directory of experiment {experiment_id}.", "path")
    return answer(ContextFileContent(path=path, **read))


@router.get("/sparks", response_model=list[SparkView])
async def sparks(
    door: Door,
    experiments: Annotated[
        str,
        Query(max_length=IDS_CHARACTERS_MAX, pattern=r"^[0-9]{1,18}(,[0-9]{1,18}){0,99}$", description="Ids: `3,4,17`."),
    ],
) -> Response:
    """The searcher's metric of each experiment's best trial, thinned out for a line as small as a word. Experiments without one
    are left out."""
    ids = [int(item) for item in experiments.split(",")][:SPARKS_MAX]
    seen = door.sight()
    hidden = await door.views.hidden_among(ids, seen.hidden)
    curves = {} if seen.nothing else await door.views.best_curves([one for one in ids if one not in hidden])
    thin = {experiment_id: _thinned(curve, SPARK_POINTS_MAX) for experiment_id, curve in curves.items()}
    return answer(
        [
            SparkView(experiment_id=one, batches=tuple(at for at, _ in curve), values=tuple(value for _, value in curve))
            for one, curve in thin.items()
        ]
    )


def _thinned(curve: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """Evenly, with the first and the last one."""
    if len(curve) <= most:
        return list(curve)
    return [curve[round(index * (len(curve) - 1) / (most - 1))] for index in range(most)]


async def _experiment(door: ExperimentsDoor, experiment_id: int) -> ExperimentDetail:
    found = await door.views.experiment(experiment_id)
    if found is None:
        raise not_found(f"experiment {experiment_id}")
    return found


def _archive(door: ExperimentsDoor, experiment: ExperimentDetail) -> Path:
    if experiment.deleted_us is not None:
        raise _gone(experiment)
    return door.contexts / f"{experiment.context_hash}.tar.gz"


def _gone(experiment: ExperimentDetail) -> DoorError:
    why = "is deleted" if experiment.deleted_us is not None else "is not on the shared directory, or cannot be read"
    return DoorError("gone", f"The code of experiment {experiment.id} {why}.")
