"""Folds the search's decisions on each trial, and the trial's results."""

from __future__ import annotations

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import search, trial
from tenuto.services.gateway.read_models.common import Connection, Handler, numbers, to_json


async def _requested(db: Connection, event: Event, data: search.TrialRequested) -> None:
    await db.execute(
        """INSERT INTO trials (experiment_id, trial_number, trial_id, state, hyperparameters, seed, target_length,
               decided_position, requested_us)
           VALUES ($1, $2, $3, 'queued', $4, $5, $6, $7, $8)""",
        data.experiment_id,
        data.trial_number,
        data.trial_id,
        to_json(data.hyperparameters),
        data.seed,
        data.target_length,
        event.position,
        event.time_us,
    )
    if data.hyperparameters:
        await db.execute(_FLAT, data.experiment_id, data.trial_number, to_json(data.hyperparameters))


_FLAT = """INSERT INTO trial_hyperparameters SELECT $1, $2, h.* FROM flat_hyperparameters($3::jsonb) h
           ON CONFLICT DO NOTHING"""  # two names may begin alike


async def _leaves(db: Connection, event: Event, trial_id: str) -> None:
    await db.execute(
        """UPDATE trials SET restart_at_us = NULL,
               leaving_us = CASE WHEN allocation_id IS NULL THEN NULL ELSE coalesce(leaving_us, $2) END WHERE trial_id = $1""",
        trial_id,
        event.time_us,
    )


async def _extended(db: Connection, event: Event, data: search.TrialExtended) -> None:
    # A trial that was extended before its workers left goes on; one that waits is queued again.
    await db.execute(
        """UPDATE trials SET target_length = $2, decided_position = $3,
               leaving_us = CASE WHEN state <> 'paused' THEN leaving_us END,
               state = CASE WHEN state <> 'paused' THEN state WHEN allocation_id IS NULL THEN 'queued' ELSE 'running' END
           WHERE trial_id = $1""",
        data.trial_id,
        data.target_length,
        event.position,
    )


async def _log_matched(db: Connection, _: Event, data: trial.LogMatched) -> None:
    await db.execute(
        """UPDATE trials SET excluded_agents = (SELECT array_agg(DISTINCT agent ORDER BY agent)
               FROM unnest(excluded_agents || $2::text) AS agent) WHERE trial_id = $1""",
        data.trial_id,
        data.agent_id,
    )


async def _straggler_noticed(db: Connection, _: Event, data: trial.StragglerNoticed) -> None:
    """Stores a straggler of the current run: those of an earlier run do not apply to this one."""
    await db.execute(
        """UPDATE trials SET stragglers = (
               SELECT coalesce(jsonb_agg(item), '[]') FROM jsonb_array_elements(stragglers) AS item
               WHERE item ->> 'allocation_id' = $2) || $3::jsonb
           WHERE trial_id = $1""",
        data.trial_id,
        data.allocation_id,
        to_json(data.model_dump(exclude={"trial_id"})),
    )


async def _paused(db: Connection, event: Event, data: search.TrialPaused) -> None:
    await _leaves(db, event, data.trial_id)
    await db.execute(
        "UPDATE trials SET state = 'paused', decided_position = $2 WHERE trial_id = $1", data.trial_id, event.position
    )


async def _stopped(db: Connection, event: Event, data: search.TrialStopped) -> None:
    await _leaves(db, event, data.trial_id)
    await db.execute(
        "UPDATE trials SET state = 'stopping', outcome = $2, decided_position = $3 WHERE trial_id = $1",
        data.trial_id,
        data.outcome,
        event.position,
    )


async def _finished(db: Connection, event: Event, data: trial.TrialFinished) -> None:
    await db.execute(
        "UPDATE trials SET state = outcome, ended_us = $2 WHERE trial_id = $1 AND outcome IS NOT NULL",
        data.trial_id,
        event.time_us,
    )


async def _saved(db: Connection, event: Event, data: trial.CheckpointSaved) -> None:
    experiment_id, number = numbers(data.trial_id)
    await db.execute(
        """INSERT INTO trial_checkpoints (checkpoint_id, experiment_id, trial_number, trial_id, allocation_id, batches, length,
               size_bytes, files, location, saved_us, metric)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
               (SELECT metric FROM trial_validations WHERE experiment_id = $2 AND trial_number = $3 AND batches = $6))""",
        data.checkpoint_id,
        experiment_id,
        number,
        data.trial_id,
        data.allocation_id,
        data.batches,
        data.length,
        data.size_bytes,
        to_json([item.model_dump() for item in data.files]),
        data.location,
        event.time_us,
    )
    await _reached(db, event, data)
    if data.breaks:  # a worker says all that was noticed since the trial began
        await db.execute("UPDATE trials SET breaks = $2 WHERE trial_id = $1", data.trial_id, list(data.breaks))


async def _checkpoint_deleted(db: Connection, event: Event, data: trial.CheckpointDeleted) -> None:
    await db.execute(
        "UPDATE trial_checkpoints SET deleted_us = $3, deleted_position = $4 WHERE checkpoint_id = $1 AND trial_id = $2",
        data.checkpoint_id,
        data.trial_id,
        event.time_us,
        event.position,
    )


async def _checkpoint_damaged(db: Connection, event: Event, data: trial.CheckpointDamaged) -> None:
    # It may be another trial's: where this one starts from. But code says it, and what one user's code says of another's
    # checkpoint must not keep anybody from using it; it stays with the trial that said it.
    # A view of the past of that experiment folds this event, too.
    await db.execute(
        """WITH changed AS (
               UPDATE trial_checkpoints AS c SET damaged_us = $2, damage = $3, resumed_from = $4
               FROM experiments AS theirs, experiments AS own LEFT JOIN user_names AS u ON u.name = own.user_name
               WHERE c.checkpoint_id = $1 AND theirs.experiment_id = c.experiment_id AND own.experiment_id = $5
                   AND theirs.user_name = own.user_name
                   AND (theirs.experiment_id >= coalesce(u.first_experiment, 1))
                       = (own.experiment_id >= coalesce(u.first_experiment, 1))
               RETURNING c.experiment_id)
           INSERT INTO foreign_events SELECT DISTINCT $6::bigint, experiment_id FROM changed WHERE experiment_id <> $5
           ON CONFLICT DO NOTHING""",
        data.checkpoint_id,
        event.time_us,
        data.reason,
        data.resumed_from,
        numbers(data.trial_id)[0],
        event.position,
    )


_REACHED = "UPDATE trials SET batches = greatest(batches, $2), length = greatest(length, $3), said_us = $4 WHERE trial_id = $1"


async def _reached(
    db: Connection, event: Event, data: trial.TrialProgressed | trial.TrainingEnded | trial.CheckpointSaved
) -> None:
    await db.execute(_REACHED, data.trial_id, data.batches, data.length, event.time_us)


async def _trial_failed(db: Connection, _: Event, data: trial.TrialFailed) -> None:
    await db.execute("UPDATE trials SET failures = $2, error = $3 WHERE trial_id = $1", data.trial_id, data.failures, data.error)


HANDLERS: dict[str, Handler] = {
    "TrialRequested": _requested,
    "TrialExtended": _extended,
    "TrialPaused": _paused,
    "TrialStopped": _stopped,
    "TrialFinished": _finished,
    "LogMatched": _log_matched,
    "StragglerNoticed": _straggler_noticed,
    "TrialFailed": _trial_failed,
    "TrialProgressed": _reached,
    "TrainingEnded": _reached,
    "CheckpointSaved": _saved,
    "CheckpointDeleted": _checkpoint_deleted,
    "CheckpointDamaged": _checkpoint_damaged,
}
