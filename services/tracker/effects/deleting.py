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

TABLES = {"trial_logs": 20_000, "trial_log_sizes": 20_000, "trial_metric_chunks": 500}
"""Rows of each table that are deleted by one statement: some hundred milliseconds, so that others wait for none. A chunk of
metrics has up to 2 MB."""
ALL_TIMES_US = 2**62


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
    for table, rows_at_once in TABLES.items():
        await _empty(pool, table, experiment_id, rows_at_once)


async def _empty(pool: asyncpg.Pool, table: str, experiment_id: int, rows_at_once: int) -> None:
    while True:
        # PostgreSQL's DELETE has no LIMIT, so the rows are chosen by a query.
        done = await pool.execute(
            f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE experiment_id = $1 LIMIT $2))",
            experiment_id,
            rows_at_once,
        )
        if done == "DELETE 0":
            return
