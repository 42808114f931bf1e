"""Records: what a trial ran in and with, and what differs between two runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from tenuto.services.gateway.experiments.door import Door
from tenuto.services.gateway.experiments.handling.comparing import REFERENCE, comparing
from tenuto.services.gateway.experiments.views import DiffView, StartView, TrialRecordView
from tenuto.services.gateway.http.context import answer
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.read_models.common import numbers
from tenuto.services.gateway.trials.adapters.records import Records
from tenuto.services.gateway.trials.handling.paths import TrialId

router = APIRouter(tags=["records"], route_class=StrictRoute)
Reference = Annotated[str, Query(max_length=40, description="An experiment such as 3, or a trial such as 3-1.")]


@router.get("/diff", response_model=DiffView)
async def diff(door: Door, a: Reference, b: Reference) -> Response:
    """Differences between two experiments or trials, the likely cause of different results first, and those of the results."""
    await door.up_to_date()
    for reference in (a, b):
        experiment_id = reference.partition("-")[0]
        if REFERENCE.fullmatch(reference):
            await door.check_seen(int(experiment_id))
    return answer(await comparing(door).diff(a, b))


@router.get("/trials/{trial_id}/record", response_model=TrialRecordView)
async def record(door: Door, trial_id: TrialId) -> Response:
    """Each start of a trial: its environment, and the data that it declared."""
    records, experiment_id = Records(door.log), numbers(trial_id)[0]
    submitted, requested = await records.submitted(experiment_id), await records.requested(trial_id)
    if submitted is None and await door.views.trial(trial_id) is not None:
        raise DoorError("not_found", f"Trial {trial_id} is an unmanaged run: no environment and no data of it are on record.")
    if submitted is None or requested is None:
        raise not_found(f"trial {trial_id}")
    starts = await records.starts(trial_id)
    environments = {}
    for name in sorted({start.environment_hash for start in starts if start.environment_hash}):
        found = await records.environment(experiment_id, name)
        if found is not None:
            environments[name] = found
    view = TrialRecordView(
        trial_id=trial_id,
        context_hash=submitted.context_hash,
        origin=submitted.origin,
        parent=submitted.parent,
        hyperparameters=requested.hyperparameters,
        seed=requested.seed,
        starts=tuple(
            StartView(
                allocation_id=start.allocation_id,
                time_us=start.time_us,
                environment_hash=start.environment_hash,
                data=tuple(start.data[name] for name in sorted(start.data)),
                changed_data=tuple(start.changed),
            )
            for start in starts
        ),
        environments=environments,
    )
    return answer(view)
