"""Folds what the search wants of each trial, and what the trial achieved."""

from __future__ import annotations

import json

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import search, trial
from tenuto.services.gateway.projections.common import Connection, Handler, numbers, to_json


async def _requested(db: Connection, event: Event, data: search.TrialRequested) -> None:
    await db.execute(
        """INSERT INTO trials (experiment_id, trial_number, trial_id, state, hyperparameters, seed, target_length, reason,
               requested_us)
           VALUES ($1, $2, $3, 'queued', $4, $5, $6, $7, $8)""",
        data.experiment_id,
        data.trial_number,
        data.trial_id,
        to_json(data.hyperparameters),
        data.seed,
        data.target_length,
        data.reason.text,
        event.time_us,
    )


async def _leaves(db: Connection, event: Event, trial_id: str) -> None:
    await db.execute(
        """UPDATE trials SET restart_at_us = NULL,
               leaving_us = CASE WHEN allocation_id IS NULL THEN NULL ELSE coalesce(leaving_us, $2) END WHERE trial_id = $1""",
        trial_id,
        event.time_us,
    )


async def _extended(db: Connection, _: Event, data: search.TrialExtended) -> None:
    # A trial that was extended before its workers left goes on; one that waits is queued again.
    await db.execute(
        """UPDATE trials SET target_length = $2, reason = $3, leaving_us = CASE WHEN state <> 'paused' THEN leaving_us END,
               state = CASE WHEN state <> 'paused' THEN state WHEN allocation_id IS NULL THEN 'queued' ELSE 'running' END
           WHERE trial_id = $1""",
        data.trial_id,
        data.target_length,
        data.reason.text,
    )


async def _log_matched(db: Connection, _: Event, data: trial.LogMatched) -> None:
    await db.execute(
        """UPDATE trials SET excluded_agents = (SELECT array_agg(DISTINCT agent ORDER BY agent)
               FROM unnest(excluded_agents || $2::text) AS agent) WHERE trial_id = $1""",
        data.trial_id,
        data.agent_id,
    )


async def _straggler_noticed(db: Connection, _: Event, data: trial.StragglerNoticed) -> None:
    """Those of an earlier run say nothing about this one."""
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
    await db.execute("UPDATE trials SET state = 'paused', reason = $2 WHERE trial_id = $1", data.trial_id, data.reason.text)


async def _stopped(db: Connection, event: Event, data: search.TrialStopped) -> None:
    await _leaves(db, event, data.trial_id)
    await db.execute(
        "UPDATE trials SET state = 'stopping', outcome = $2, reason = $3 WHERE trial_id = $1",
        data.trial_id,
        data.outcome,
        data.reason.text,
    )


async def _finished(db: Connection, event: Event, data: trial.TrialFinished) -> None:
    await db.execute(
        "UPDATE trials SET state = outcome, ended_us = $2 WHERE trial_id = $1 AND outcome IS NOT NULL",
        data.trial_id,
        event.time_us,
    )


_ADD_VALIDATION = """
    INSERT INTO trial_validations (experiment_id, trial_number, batches, length, allocation_id, time_us, metrics, metric)
    SELECT $1, $2, $3, $4, $5, $6, $7::jsonb, ($7::jsonb ->> e.metric)::float8 FROM experiments e WHERE e.experiment_id = $1
    ON CONFLICT DO NOTHING RETURNING metric"""
# NaN is never the best: PostgreSQL sorts it above every number, so it is taken out by hand.
_TRIAL_BEST = """
    UPDATE trials t SET batches = greatest(t.batches, $3), length = greatest(t.length, $4), latest_metric = $5,
        said_us = $6, best_metric = CASE WHEN b.better THEN $5 ELSE t.best_metric END,
        best_batches = CASE WHEN b.better THEN $3 ELSE t.best_batches END
    FROM (SELECT t2.experiment_id, t2.trial_number,
              $5::float8 IS NOT NULL AND $5::float8 <> 'NaN' AND (t2.best_metric IS NULL
                  OR CASE WHEN e.smaller_is_better THEN $5 < t2.best_metric ELSE $5 > t2.best_metric END) AS better
          FROM trials t2 JOIN experiments e USING (experiment_id)
          WHERE t2.experiment_id = $1 AND t2.trial_number = $2) b
    WHERE t.experiment_id = b.experiment_id AND t.trial_number = b.trial_number"""
_EXPERIMENT_BEST = """
    UPDATE experiments SET best_metric = $2, best_trial_id = $3
    WHERE experiment_id = $1 AND $2::float8 IS NOT NULL AND $2::float8 <> 'NaN' AND (best_metric IS NULL
        OR CASE WHEN smaller_is_better THEN $2 < best_metric ELSE $2 > best_metric END)"""


async def _validated(db: Connection, event: Event, data: trial.ValidationReported) -> None:
    experiment_id, number = numbers(data.trial_id)
    metrics = to_json(json.loads(event.payload)["metrics"])  # as recorded: NaN is a string
    row = await db.fetchrow(
        _ADD_VALIDATION, experiment_id, number, data.batches, data.length, data.allocation_id, event.time_us, metrics
    )
    if row is None:
        return
    metric = row["metric"]
    await db.execute(_TRIAL_BEST, experiment_id, number, data.batches, data.length, metric, event.time_us)
    await db.execute(_EXPERIMENT_BEST, experiment_id, metric, data.trial_id)
    await db.execute(
        "UPDATE trial_checkpoints SET metric = $4 WHERE experiment_id = $1 AND trial_number = $2 AND batches = $3",
        experiment_id,
        number,
        data.batches,
        metric,
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
        "UPDATE trial_checkpoints SET deleted_us = $3, delete_reason = $4 WHERE checkpoint_id = $1 AND trial_id = $2",
        data.checkpoint_id,
        data.trial_id,
        event.time_us,
        data.reason,
    )


async def _checkpoint_damaged(db: Connection, event: Event, data: trial.CheckpointDamaged) -> None:
    # It may be another trial's: where this one starts from.
    await db.execute(
        "UPDATE trial_checkpoints SET damaged_us = $2, damage = $3, resumed_from = $4 WHERE checkpoint_id = $1",
        data.checkpoint_id,
        event.time_us,
        data.reason,
        data.resumed_from,
    )


async def _reached(db: Connection, event: Event, data: trial.TrialProgressed | trial.CheckpointSaved) -> None:
    await db.execute(
        "UPDATE trials SET batches = greatest(batches, $2), length = greatest(length, $3), said_us = $4 WHERE trial_id = $1",
        data.trial_id,
        data.batches,
        data.length,
        event.time_us,
    )


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
    "ValidationReported": _validated,
    "CheckpointSaved": _saved,
    "CheckpointDeleted": _checkpoint_deleted,
    "CheckpointDamaged": _checkpoint_damaged,
}
