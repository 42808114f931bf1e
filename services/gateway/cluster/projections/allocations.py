"""Folds who was given which slots, and what became of the workers there."""

from __future__ import annotations

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import pool, run
from tenuto.services.gateway.read_models.common import Connection, Handler, to_json


async def _granted(db: Connection, event: Event, data: pool.AllocationGranted) -> None:
    await db.execute(
        """INSERT INTO allocations (allocation_id, trial_id, experiment_id, pool, state, slots, granted_position, granted_us)
           VALUES ($1, $2, $3, $4, 'granted', $5, $6, $7)""",
        data.allocation_id,
        data.trial_id,
        data.experiment_id,
        data.pool,
        to_json([item.model_dump() for item in data.slots]),
        event.position,
        event.time_us,
    )
    await db.execute(
        """UPDATE trials SET allocation_id = $2, allocations = allocations + 1,
               leaving_us = NULL, restart_at_us = NULL, said_us = NULL,
               state = CASE WHEN state = 'queued' THEN 'starting' ELSE state END
           WHERE trial_id = $1""",
        data.trial_id,
        data.allocation_id,
    )


async def _told_to_leave(db: Connection, event: Event, data: pool.AllocationPreempted | pool.AllocationResized) -> None:
    # An allocation may be told more than once, as a resize can be changed: the first time counts.
    await db.execute(
        """UPDATE allocations SET leaving_us = $2, leaving_position = $3
           WHERE allocation_id = $1 AND leaving_us IS NULL AND exited_us IS NULL""",
        data.allocation_id,
        event.time_us,
        event.position,
    )
    await db.execute(
        "UPDATE trials SET leaving_us = coalesce(leaving_us, $3) WHERE trial_id = $1 AND allocation_id = $2",
        data.trial_id,
        data.allocation_id,
        event.time_us,
    )


async def _preempted(db: Connection, event: Event, data: pool.AllocationPreempted) -> None:
    await _told_to_leave(db, event, data)
    await db.execute(
        "UPDATE allocations SET state = 'preempting' WHERE allocation_id = $1 AND exited_us IS NULL", data.allocation_id
    )


async def _resized(db: Connection, event: Event, data: pool.AllocationResized) -> None:
    """The allocation's workers leave as if preempted; the trial's next allocation has the new slots."""
    await _told_to_leave(db, event, data)
    await db.execute(
        "UPDATE allocations SET state = 'resizing' WHERE allocation_id = $1 AND exited_us IS NULL", data.allocation_id
    )


async def _released(db: Connection, event: Event, data: pool.AllocationReleased) -> None:
    await db.execute(
        "UPDATE allocations SET state = 'released', released_us = $2 WHERE allocation_id = $1", data.allocation_id, event.time_us
    )
    await db.execute(
        """UPDATE trials SET allocation_id = NULL, leaving_us = NULL,
               state = CASE WHEN state IN ('starting', 'running') THEN 'queued' ELSE state END
           WHERE trial_id = $1 AND allocation_id = $2""",
        data.trial_id,
        data.allocation_id,
    )


async def _workers_starting(db: Connection, _: Event, data: run.WorkersStarting) -> None:
    await db.execute(
        "UPDATE allocations SET state = 'starting' WHERE allocation_id = $1 AND state = 'granted'", data.allocation_id
    )


async def _workers_started(db: Connection, event: Event, data: run.WorkersStarted) -> None:
    await db.execute(
        """UPDATE allocations SET started_us = $2,
               state = CASE WHEN state IN ('granted', 'starting') THEN 'running' ELSE state END
           WHERE allocation_id = $1""",
        data.allocation_id,
        event.time_us,
    )
    await db.execute(
        """UPDATE trials SET said_us = $2, state = CASE WHEN state = 'starting' THEN 'running' ELSE state END
           WHERE trial_id = $1""",
        data.trial_id,
        event.time_us,
    )


async def _workers_exited(db: Connection, event: Event, data: run.WorkersExited) -> None:
    await db.execute(
        """UPDATE allocations SET exited_us = $2, outcome = $3, exit_code = $4, error = $5,
               state = CASE WHEN state = 'released' THEN state ELSE 'exited' END
           WHERE allocation_id = $1""",
        data.allocation_id,
        event.time_us,
        data.outcome,
        data.exit_code,
        data.error,
    )
    await db.execute(
        "UPDATE trials SET setbacks = $2, restart_at_us = $3 WHERE trial_id = $1",
        data.trial_id,
        data.setbacks,
        data.restart_at_us,
    )


async def _pause_ended(db: Connection, _: Event, data: run.RestartPauseEnded) -> None:
    await db.execute("UPDATE trials SET restart_at_us = NULL WHERE trial_id = $1", data.trial_id)


HANDLERS: dict[str, Handler] = {
    "AllocationGranted": _granted,
    "AllocationPreempted": _preempted,
    "AllocationResized": _resized,
    "AllocationReleased": _released,
    "WorkersStarting": _workers_starting,
    "WorkersStarted": _workers_started,
    "WorkersExited": _workers_exited,
    "RestartPauseEnded": _pause_ended,
}
