"""Deletes what an experiment stored, once its deletion is recorded. May be done again after a crash: what is gone is gone."""

from __future__ import annotations

import logging

import asyncpg

from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.storage.store import StoreError
from tenuto.kernel.storage.stores import Stores
from tenuto.kernel.storage.sweep import sweep
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import ExperimentDeleted
from tenuto.services.tracker.effects import store_of

logger = logging.getLogger(__name__)

ROWS_AT_ONCE = 20_000
"""Rows deleted by one statement: some hundred milliseconds, so that others wait for none."""
ALL_TIMES_US = 2**62
_TABLES = ("trial_logs", "trial_metrics")


async def delete_experiment(log: EventLog, stores: Stores, pool: asyncpg.Pool, event: Event) -> None:
    """Raises OSError (StoreError, for a store) when not all could be deleted now."""
    data = event.data
    assert isinstance(data, ExperimentDeleted)
    experiment_id = data.experiment_id
    used = {experiment_id: await store_of(log, experiment_id)}
    found = await sweep(log, stores, used, lambda _: None, ALL_TIMES_US, dry_run=False)
    logger.info(
        "experiment %d is deleted: %d files with %d bytes were still stored", experiment_id, len(found.orphans), found.size_bytes
    )
    if found.problems:
        raise StoreError("; ".join(found.problems))
    for table in _TABLES:
        await _empty(pool, table, experiment_id)


async def _empty(pool: asyncpg.Pool, table: str, experiment_id: int) -> None:
    while True:
        # PostgreSQL's DELETE has no LIMIT, so the rows are chosen by a query.
        done = await pool.execute(
            f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE experiment_id = $1 LIMIT $2))",
            experiment_id,
            ROWS_AT_ONCE,
        )
        if done == "DELETE 0":
            return
