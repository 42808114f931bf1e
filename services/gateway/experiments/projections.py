"""Folds what users asked for and how the search of an experiment ended."""

from __future__ import annotations

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import access, request, search
from tenuto.services.gateway.read_models.common import Connection, Handler


async def _submitted(db: Connection, event: Event, data: request.ExperimentSubmitted) -> None:
    config = data.config
    searcher, resources = config.searcher, config.resources
    await db.execute(
        """INSERT INTO experiments (experiment_id, name, description, labels, user_name, state, method, metric,
               smaller_is_better, pool, slots_per_trial, priority, weight, max_slots, seed, config, context_hash,
               context_size_bytes, submitted_us, max_trials, max_concurrent_trials, workspace, project,
               parent_id)
           VALUES ($1, $2, $3, $4, $5, 'active', $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                   $21, $22, $23)""",
        data.experiment_id,
        config.name,
        config.description,
        list(config.labels),
        data.user,
        searcher.name,
        searcher.metric,
        searcher.smaller_is_better,
        resources.pool,
        resources.slots_min,
        resources.priority,
        resources.weight,
        resources.max_slots,
        data.seed,
        config.to_json().decode(),
        data.context_hash,
        data.context_size_bytes,
        event.time_us,
        getattr(searcher, "max_trials", None),
        getattr(searcher, "max_concurrent_trials", None),
        resources.workspace,
        config.project,
        None if data.parent is None else data.parent.experiment_id,
    )


def _set_state(state: str) -> Handler:
    async def handle(db: Connection, _: Event, data: request.RequestEvent) -> None:
        await db.execute("UPDATE experiments SET state = $2 WHERE experiment_id = $1", data.experiment_id, state)

    return handle


async def _priority(db: Connection, _: Event, data: request.ExperimentPriorityChanged) -> None:
    await db.execute("UPDATE experiments SET priority = $2 WHERE experiment_id = $1", data.experiment_id, data.priority)


async def _weight(db: Connection, _: Event, data: request.ExperimentWeightChanged) -> None:
    await db.execute("UPDATE experiments SET weight = $2 WHERE experiment_id = $1", data.experiment_id, data.weight)


async def _slot_limit(db: Connection, _: Event, data: request.ExperimentSlotLimitChanged) -> None:
    await db.execute("UPDATE experiments SET max_slots = $2 WHERE experiment_id = $1", data.experiment_id, data.max_slots)


async def _trial_limits(db: Connection, _: Event, data: request.ExperimentTrialLimitsChanged) -> None:
    await db.execute(
        """UPDATE experiments SET max_trials = coalesce($2, max_trials),
               max_concurrent_trials = coalesce($3, max_concurrent_trials)
           WHERE experiment_id = $1 AND method <> 'single'""",
        data.experiment_id,
        data.max_trials,
        data.max_concurrent_trials,
    )


async def _pool(db: Connection, _: Event, data: request.ExperimentPoolChanged) -> None:
    await db.execute("UPDATE experiments SET pool = $2 WHERE experiment_id = $1", data.experiment_id, data.pool)


async def _described(db: Connection, _: Event, data: request.ExperimentDescribed) -> None:
    await db.execute(
        """UPDATE experiments SET name = coalesce($2, name), labels = coalesce($3, labels), note = coalesce($4, note)
           WHERE experiment_id = $1""",
        data.experiment_id,
        data.name,
        None if data.labels is None else list(data.labels),
        data.note,
    )


async def _put_into_project(db: Connection, _: Event, data: access.ExperimentProjectChanged) -> None:
    await db.execute("UPDATE experiments SET project = $2 WHERE experiment_id = $1", data.experiment_id, data.project)


async def _project_changed(db: Connection, event: Event, data: access.ProjectChanged) -> None:
    await db.execute("INSERT INTO foreign_events VALUES ($1, 0) ON CONFLICT DO NOTHING", event.position)
    if data.name is not None:
        await db.execute(
            "UPDATE experiments SET project = $3 WHERE workspace = $1 AND project = $2", data.workspace, data.project, data.name
        )


def _set_archived(archived: bool) -> Handler:
    async def handle(db: Connection, _: Event, data: request.RequestEvent) -> None:
        await db.execute("UPDATE experiments SET archived = $2 WHERE experiment_id = $1", data.experiment_id, archived)

    return handle


async def _deletion_requested(db: Connection, _: Event, data: request.ExperimentDeletionRequested) -> None:
    await db.execute("UPDATE experiments SET deletion_due_us = $2 WHERE experiment_id = $1", data.experiment_id, data.due_us)


async def _deletion_canceled(db: Connection, _: Event, data: request.ExperimentDeletionCanceled) -> None:
    await db.execute("UPDATE experiments SET deletion_due_us = NULL WHERE experiment_id = $1", data.experiment_id)


async def _deleted(db: Connection, event: Event, data: request.ExperimentDeleted) -> None:
    """Its checkpoints have no deletions of their own on record."""
    change = "UPDATE experiments SET deletion_due_us = NULL, deleted_us = $2 WHERE experiment_id = $1"
    await db.execute(change, data.experiment_id, event.time_us)
    await db.execute(
        "UPDATE trial_checkpoints SET deleted_us = $2, deleted_position = $3 WHERE experiment_id = $1 AND deleted_us IS NULL",
        data.experiment_id,
        event.time_us,
        event.position,
    )


_END = """UPDATE experiments SET state = $2, ended_us = $3, error = $4, best_trial_id = coalesce($5, best_trial_id),
              best_metric = coalesce($6, best_metric)
          WHERE experiment_id = $1"""


async def _completed(db: Connection, event: Event, data: search.ExperimentCompleted) -> None:
    await db.execute(_END, data.experiment_id, "completed", event.time_us, None, data.best_trial_id, data.best_metric)


async def _failed(db: Connection, event: Event, data: search.ExperimentFailed) -> None:
    await db.execute(_END, data.experiment_id, "failed", event.time_us, data.error, None, None)


async def _canceled(db: Connection, event: Event, data: search.ExperimentCanceled) -> None:
    await db.execute(_END, data.experiment_id, "canceled", event.time_us, None, None, None)


async def _user_created(db: Connection, _: Event, data: request.UserCreated) -> None:
    await db.execute(
        """INSERT INTO user_names SELECT $1, 1 + coalesce(max(experiment_id), 0) FROM experiments
           ON CONFLICT (name) DO UPDATE SET first_experiment = excluded.first_experiment""",
        data.name,
    )


HANDLERS: dict[str, Handler] = {
    "ExperimentSubmitted": _submitted,
    "UserCreated": _user_created,
    "ExperimentPauseRequested": _set_state("paused"),
    "ExperimentResumeRequested": _set_state("active"),
    "ExperimentCancelRequested": _set_state("canceling"),
    "ExperimentPriorityChanged": _priority,
    "ExperimentWeightChanged": _weight,
    "ExperimentSlotLimitChanged": _slot_limit,
    "ExperimentTrialLimitsChanged": _trial_limits,
    "ExperimentPoolChanged": _pool,
    "ExperimentDescribed": _described,
    "ExperimentProjectChanged": _put_into_project,
    "ProjectChanged": _project_changed,
    "ExperimentArchived": _set_archived(True),
    "ExperimentUnarchived": _set_archived(False),
    "ExperimentDeletionRequested": _deletion_requested,
    "ExperimentDeletionCanceled": _deletion_canceled,
    "ExperimentDeleted": _deleted,
    "ExperimentCompleted": _completed,
    "ExperimentFailed": _failed,
    "ExperimentCanceled": _canceled,
}
