"""Changes that users make to an experiment after its submission: name, labels, note, archiving and deletion."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from tenuto.schemas.events.request import Description
from tenuto.schemas.text import unprintable
from tenuto.services.gateway.experiments.bodies import DeletionAsked
from tenuto.services.gateway.experiments.commands import (
    ArchiveExperiment,
    DeleteExperiment,
    DescribeExperiment,
    KeepExperiment,
    RecordCommand,
    UnarchiveExperiment,
)
from tenuto.services.gateway.experiments.door import Door, ExperimentsDoor
from tenuto.services.gateway.experiments.handling.paths import ExperimentId
from tenuto.services.gateway.experiments.views import ExperimentDetail
from tenuto.services.gateway.http.context import answer, asked
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.trials.bodies import Done

router = APIRouter(tags=["experiments"], route_class=StrictRoute)


@router.patch("/experiments/{experiment_id}/description", response_model=Done)
async def describe(door: Door, experiment_id: ExperimentId, body: Description) -> Response:
    """Another name, other labels or another note, also after its end. What is left out or null stays as it is. The configuration
    on record stays in any case."""
    named = {"name": body.name or "", **{f"labels[{index}]": item for index, item in enumerate(body.labels or ())}}
    for path, text in named.items():
        if why := unprintable(text):
            raise DoorError("invalid", f"{path} {why}.", path)
    now = await _found(door, experiment_id)
    new = {name: value for name, value in body if value is not None and value != getattr(now, name)}
    if not new:
        return answer(Done(id=experiment_id, changed=False))
    return await _record(door, DescribeExperiment(**_of_record(door, now), description=Description(**new)))


@router.post("/experiments/{experiment_id}/archive", response_model=Done)
async def archive(door: Door, experiment_id: ExperimentId) -> Response:
    """Lists leave an ended experiment out from now on, unless they ask for archived ones. Nothing of it is deleted."""
    now = await _found(door, experiment_id)
    if now.archived:
        return answer(Done(id=experiment_id, changed=False))
    return await _record(door, ArchiveExperiment(**_of_record(door, now)))


@router.post("/experiments/{experiment_id}/unarchive", response_model=Done)
async def unarchive(door: Door, experiment_id: ExperimentId) -> Response:
    """Lists show the experiment again."""
    now = await _found(door, experiment_id)
    if not now.archived:
        return answer(Done(id=experiment_id, changed=False))
    return await _record(door, UnarchiveExperiment(**_of_record(door, now)))


@router.delete("/experiments/{experiment_id}", response_model=DeletionAsked)
async def delete(
    door: Door,
    experiment_id: ExperimentId,
    now: Annotated[bool, Query(description="Without the time in which it can be taken back.")] = False,
) -> Response:
    """Deletes an ended experiment with its checkpoints, metrics, log lines and code, after the operator's grace time. Its events
    stay on record."""
    found = await _found(door, experiment_id)
    _check_kept(found)
    grace_us = 0 if now else round(door.settings.deletion_grace_hours * 3_600e6)
    command = DeleteExperiment(**_of_record(door, found), grace_us=grace_us)
    changed = bool(await door.carry_out(command))
    asked_for = door.state.deletions.get(experiment_id)
    due_us = asked_for.due_us if asked_for is not None else command.time_us
    return answer(DeletionAsked(id=experiment_id, changed=changed, due_us=due_us))


@router.post("/experiments/{experiment_id}/undelete", response_model=Done)
async def undelete(door: Door, experiment_id: ExperimentId) -> Response:
    """Keeps an experiment that was to be deleted."""
    found = await _found(door, experiment_id)
    _check_kept(found)
    changed = bool(await door.carry_out(KeepExperiment(**_of_record(door, found))))
    return answer(Done(id=experiment_id, changed=changed))


def _check_kept(experiment: ExperimentDetail) -> None:
    """Raises DoorError."""
    if experiment.deleted_us is not None:
        raise DoorError("gone", f"Experiment {experiment.id} is deleted, and cannot be brought back.")


async def _found(door: ExperimentsDoor, experiment_id: int) -> ExperimentDetail:
    """Experiment from the views, so that a request that changes nothing is not recorded again."""
    found = await door.views.experiment(experiment_id)
    if found is None:
        raise not_found(f"experiment {experiment_id}")
    return found


def _of_record(door: ExperimentsDoor, experiment: ExperimentDetail) -> dict[str, Any]:
    return {**asked(door), "experiment_id": experiment.id, "submitter": experiment.user, "workspace": experiment.workspace}


async def _record(door: ExperimentsDoor, command: RecordCommand) -> Response:
    await door.carry_out(command)
    return answer(Done(id=command.experiment_id, changed=True))
