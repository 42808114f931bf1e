"""Writes what unmanaged runs log: data that decide nothing, in tables beside the log. A batch is written whole or not at all, and
the same batch again changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import asyncpg

from tenuto.services.gateway.http.refusals import RequestRefused
from tenuto.services.gateway.mlflow.adapters.run_models import ModelPoint, write_points

PARAMETERS_MAX = 1_000
TAGS_MAX = 500
METRICS_MAX = 2_000
"""Most names of metrics of one run: scripts have dozens; each is read again by every search that finds the run."""
TEXT_CHARACTERS_MAX = 2 << 20
"""Most characters of all parameters of a run, and of all its tags."""
INPUTS_MAX = 100
POINTS_MAX = 5_000_000
"""Most values of one run's metrics, such as 50 metrics of 100,000 steps: each is a row of some hundred bytes with its index."""

TABLES = (
    "unmanaged_metrics", "unmanaged_latest", "unmanaged_parameters", "unmanaged_tags", "unmanaged_inputs",
    "unmanaged_models", "unmanaged_model_metrics", "unmanaged_model_uses",
)  # fmt: skip
DELETED_AT_ONCE = 20_000
"""Rows of one statement: some hundred milliseconds, so that others wait for none."""
_METRICS = """WITH new AS (
        INSERT INTO unmanaged_metrics SELECT $1, $2, * FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::float8[])
        ON CONFLICT DO NOTHING RETURNING name)
    SELECT name, count(*) AS points FROM new GROUP BY name"""
_NEWER = "(excluded.step, excluded.time_ms, excluded.value) > (l.step, l.time_ms, l.value)"
_LATEST = f"""INSERT INTO unmanaged_latest AS l
    SELECT $1, $2, * FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::float8[], $7::bigint[])
    ON CONFLICT (experiment_id, trial_number, name) DO UPDATE
    SET points = l.points + excluded.points, step = CASE WHEN {_NEWER} THEN excluded.step ELSE l.step END,
        time_ms = CASE WHEN {_NEWER} THEN excluded.time_ms ELSE l.time_ms END,
        value = CASE WHEN {_NEWER} THEN excluded.value ELSE l.value END
    WHERE excluded.points > 0"""
_PARAMETERS = """INSERT INTO unmanaged_parameters
    SELECT $1, $2, * FROM unnest($3::text[], $4::text[]) ON CONFLICT DO NOTHING"""
_CHANGED = """SELECT p.name, p.text AS known, n.text AS given FROM unnest($3::text[], $4::text[]) AS n (name, text)
    JOIN unmanaged_parameters p ON p.experiment_id = $1 AND p.trial_number = $2 AND p.name = n.name
    WHERE p.text <> n.text LIMIT 1"""
_TAGS = """INSERT INTO unmanaged_tags
    SELECT $1, $2, * FROM unnest($3::text[], $4::text[])
    ON CONFLICT (experiment_id, trial_number, name) DO UPDATE SET text = excluded.text"""
_INPUTS = "INSERT INTO unmanaged_inputs SELECT $1, $2, * FROM unnest($3::text[], $4::text[]) ON CONFLICT DO NOTHING"
_OF = "experiment_id = $1 AND trial_number = $2"


class DataRefused(RequestRefused):
    """`str(error)` is one sentence for the user. Nothing was written."""


class RunPoint(NamedTuple):
    name: str
    step: int
    time_ms: int
    value: float


class Pair(NamedTuple):
    name: str
    text: str


class RunData:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def log(
        self,
        run: tuple[int, int],
        points: Sequence[RunPoint] = (),
        parameters: Sequence[Pair] = (),
        tags: Sequence[Pair] = (),
        of_models: Sequence[ModelPoint] = (),
    ) -> None:
        """`run`: experiment and number of the trial; number 0 is the experiment itself, and a negative one a logged model.
        `of_models`: those of the points that are about models. Raises DataRefused, ModelsRefused.

        Rows are sorted, so that two batches at once lock them in one order.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if parameters:
                await self._parameters(connection, run, sorted(set(parameters)))
            if points:
                rows = sorted(set(points), key=_order)
                latest = {point.name: point for point in rows}  # the last of each name has the largest step, time and value
                new = {row["name"]: row["points"] for row in await connection.fetch(_METRICS, *run, *_columns(rows))}
                counted = [(*point, new.get(name, 0)) for name, point in latest.items()]
                await connection.execute(_LATEST, *run, *_columns(counted))
                await self._check(connection, run, "latest", METRICS_MAX, "metrics")
                points_now = await connection.fetchval(f"SELECT sum(points) FROM unmanaged_latest WHERE {_OF}", *run)
                if points_now > POINTS_MAX:
                    raise DataRefused(
                        f"This would be {points_now:.0f} values of the run's metrics; the most is {POINTS_MAX}: log every n-th "
                        "step, or go on in another run."
                    )
            if tags:
                rows_of_tags = sorted({tag.name: tag for tag in tags}.values())
                await connection.execute(_TAGS, *run, *_columns(rows_of_tags))
                await self._check(connection, run, "tags", TAGS_MAX, "tags")
            if of_models:
                await write_points(connection, of_models)

    async def _parameters(self, connection: asyncpg.Connection, run: tuple[int, int], rows: Sequence[Pair]) -> None:
        names = [row.name for row in rows]
        twice = next((name for name, after in pairwise(names) if name == after), None)
        if twice is not None:
            raise DataRefused(f"The parameter {twice!r} is given two values in one request.")
        await connection.execute(_PARAMETERS, *run, *_columns(rows))
        if (changed := await connection.fetchrow(_CHANGED, *run, *_columns(rows))) is not None:
            raise DataRefused(
                f"The parameter {changed['name']!r} has the value {_short(changed['known'])} already, and a parameter is never "
                f"changed (found {_short(changed['given'])}); log it under another name, or in another run."
            )
        await self._check(connection, run, "parameters", PARAMETERS_MAX, "parameters")

    async def _check(self, connection: asyncpg.Connection, run: tuple[int, int], table: str, most: int, what: str) -> None:
        text = "0" if table == "latest" else "coalesce(sum(length(text)), 0)"
        count, characters = await connection.fetchrow(f"SELECT count(*), {text} FROM unmanaged_{table} WHERE {_OF}", *run)
        if count > most:
            raise DataRefused(f"This would be {count} {what} of one run; the most is {most}.")
        if characters > TEXT_CHARACTERS_MAX:
            raise DataRefused(
                f"The {what} of the run would have {characters} characters together; the most is {TEXT_CHARACTERS_MAX}."
            )

    async def delete_experiment(self, experiment_id: int) -> None:
        """Deletes what all its runs have logged. May be done again."""
        for table in TABLES:
            done = ""
            while done != "DELETE 0":  # PostgreSQL's DELETE has no LIMIT, so the rows are chosen by a query
                done = await self._pool.execute(
                    f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE experiment_id = $1 LIMIT $2))",
                    experiment_id,
                    DELETED_AT_ONCE,
                )

    async def delete_tag(self, run: tuple[int, int], name: str) -> bool:
        """Removes a tag; False if there was none."""
        gone = await self._pool.fetch(f"DELETE FROM unmanaged_tags WHERE {_OF} AND name = $3 RETURNING 1", *run, name)
        return bool(gone)

    async def add_inputs(self, run: tuple[int, int], inputs: Sequence[Pair]) -> None:
        """`inputs`: hash and JSON text of each. Raises DataRefused."""
        if not inputs:
            return
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_INPUTS, *run, *_columns(sorted(set(inputs))))
            count = await connection.fetchval(f"SELECT count(*) FROM unmanaged_inputs WHERE {_OF}", *run)
            if count > INPUTS_MAX:
                raise DataRefused(f"This would be {count} data sets of one run; the most is {INPUTS_MAX}.")


def _order(point: RunPoint) -> tuple[str, int, int, bool, float]:
    """Sort key of a point, in the order of PostgreSQL: NaN is the largest value."""
    nan = point.value != point.value
    return point.name, point.step, point.time_ms, nan, 0.0 if nan else point.value


def _columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
