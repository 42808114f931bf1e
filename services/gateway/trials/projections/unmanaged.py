"""Folds the unmanaged runs: their experiments and trials. Their logged values are data beside the log, and not folded."""

from __future__ import annotations

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import unmanaged
from tenuto.services.gateway.read_models.common import Connection, Handler, to_json
from tenuto.services.gateway.rights.access import DEFAULT as WORKSPACE

METHOD = "unmanaged"
"""Method of unmanaged runs, in place of a search's name."""


async def _created(db: Connection, event: Event, data: unmanaged.UnmanagedExperimentCreated) -> None:
    await db.execute(
        """INSERT INTO experiments (experiment_id, name, description, labels, user_name, state, method, metric,
               smaller_is_better, pool, slots_per_trial, priority, weight, seed, config, context_hash, context_size_bytes,
               submitted_us, workspace)
           VALUES ($1, $2, '', '{}', $3, 'unmanaged', $4, '', true, '', 0, 42, 1, 0, $5, '', 0, $6, $7)""",
        data.experiment_id,
        data.name,
        data.user,
        METHOD,
        to_json({"name": data.name}),
        event.time_us,
        WORKSPACE,
    )


async def _started(db: Connection, event: Event, data: unmanaged.UnmanagedTrialStarted) -> None:
    await db.execute(
        """INSERT INTO trials (experiment_id, trial_number, trial_id, state, hyperparameters, seed, target_length,
               decided_position, requested_us, unmanaged, run_name, run_user, recorded_us)
           VALUES ($1, $2, $3, 'running', '{}', 0, 0, $4, $5, true, $6, $7, $8)""",
        data.experiment_id,
        data.trial_number,
        data.trial_id,
        event.position,
        data.started_us,
        data.name,
        data.user,
        event.time_us,
    )


async def _changed(db: Connection, _: Event, data: unmanaged.UnmanagedTrialChanged) -> None:
    await db.execute(
        "UPDATE trials SET state = $2, ended_us = $3, run_deleted = $4 WHERE trial_id = $1 AND unmanaged",
        data.trial_id,
        data.state,
        data.ended_us,
        data.deleted,
    )


HANDLERS: dict[str, Handler] = {
    "UnmanagedExperimentCreated": _created,
    "UnmanagedTrialStarted": _started,
    "UnmanagedTrialChanged": _changed,
}
