"""Writes the models that unmanaged runs log. Their parameters and tags are written as those of runs are (`run_data.py`), and so
are their files (`artifacts.py`), under the negative number of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

MODELS_MAX = 1_000_000
"""Most models of one experiment: as many as it may have runs, each of which may log one."""
METRICS_MAX = 2_000
"""Most metrics of one model, counted by name, run and data set: each is read again by every search that finds the model."""
USES_MAX = 10_000
"""Most models of one run: one for each of its checkpoints."""
_CREATE = """INSERT INTO unmanaged_models VALUES
    ($1, (SELECT coalesce(max(model_number), 0) + 1 FROM unmanaged_models WHERE experiment_id = $1),
        $2, $3, 'PENDING', $4, $5, $6, $6)
    RETURNING model_number"""
_CHANGE = "UPDATE unmanaged_models SET status = coalesce($3, status), deleted = deleted OR $4, updated_us = $5"
_OF = "experiment_id = $1 AND model_number = $2"
_METRICS = """INSERT INTO unmanaged_model_metrics AS m
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
        $9::float8[])
    ON CONFLICT (experiment_id, model_number, name, run_id, dataset_name, dataset_digest) DO UPDATE
    SET step = excluded.step, time_ms = excluded.time_ms, value = excluded.value
    WHERE (excluded.step, excluded.time_ms, excluded.value) > (m.step, m.time_ms, m.value)"""
_COUNT = f"SELECT count(*) FROM unmanaged_model_metrics WHERE {_OF}"
_USES = "INSERT INTO unmanaged_model_uses SELECT $1, $2, $3, * FROM unnest($4::text[], $5::bigint[]) ON CONFLICT DO NOTHING"


class ModelsRefused(Exception):
    """`str(error)` is one sentence for the user. Nothing was written."""


class ModelPoint(NamedTuple):
    """A value that a run measured of a model."""

    experiment_id: int
    """Experiment of the model."""
    number: int
    name: str
    run_id: str
    dataset_name: str
    dataset_digest: str
    step: int
    time_ms: int
    value: float


class RunModels:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def create(self, experiment_id: int, name: str, kind: str, source_run_id: str, user: str, time_us: int) -> int:
        """Number of the new model in its experiment; without a name it gets one. Raises ModelsRefused."""
        async with self._pool.acquire() as connection, connection.transaction():
            # Models of one experiment take turns here: each gets the number after the one before.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"models/{experiment_id}")
            number: int = await connection.fetchval(_CREATE, experiment_id, name, kind, source_run_id, user, time_us)
            if number > MODELS_MAX:
                raise ModelsRefused(
                    f"Experiment {experiment_id} has {MODELS_MAX} logged models, the most; use another experiment."
                )
            return number

    async def change(self, model: tuple[int, int], time_us: int, *, status: str | None = None, delete: bool = False) -> None:
        """`model`: its experiment and its number there."""
        await self._pool.execute(f"{_CHANGE} WHERE {_OF}", *model, status, delete, time_us)

    async def use(self, run: tuple[int, int], uses: Sequence[tuple[str, int]], *, output: bool) -> None:
        """`uses`: id of each model and its step. Raises ModelsRefused."""
        if not uses:
            return
        async with self._pool.acquire() as connection, connection.transaction():
            models, steps = zip(*sorted(set(uses)), strict=True)
            await connection.execute(_USES, *run, output, list(models), list(steps))
            query = "SELECT count(*) FROM unmanaged_model_uses WHERE experiment_id = $1 AND trial_number = $2"
            count = await connection.fetchval(query, *run)
            if count > USES_MAX:
                raise ModelsRefused(f"This would be {count} models of one run; the most is {USES_MAX}.")


async def write_points(connection: asyncpg.Connection, points: Sequence[ModelPoint]) -> None:
    """Stores the newest point of each name, run and data set, in the transaction of the connection. Raises ModelsRefused."""
    newest: dict[tuple[object, ...], ModelPoint] = {}
    for point in points:
        known = newest.get(point[:6])
        if known is None or point[6:8] >= known[6:8]:
            newest[point[:6]] = point
    rows = sorted(newest.values(), key=lambda point: point[:6])  # so that two batches lock them in one order
    await connection.execute(_METRICS, *(list(column) for column in zip(*rows, strict=True)))
    for model in sorted({point[:2] for point in rows}):
        if (count := await connection.fetchval(_COUNT, *model)) > METRICS_MAX:
            raise ModelsRefused(
                f"This would be {count} metrics of one logged model, by name, run and data set; the most is {METRICS_MAX}."
            )
