"""Metrics of an experiment by columns: what programs load into a data frame, in a tenth of the time that JSON takes.

PostgreSQL collects each column of a page into one array, so a million rows cross the connection as a few dozen values and none of
them is ever a Python object. The answer is a file of numpy's own format (.npy), which many tools read.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tenuto.services.gateway.projections.rows import Fetching

Kind = Literal["training", "validation"]
ROWS_MAX = 250_000
VALUES_MAX = 2_500_000
"""Of one answer, 20 MB: with many metrics it has fewer rows."""
METRICS_MAX = 500
"""Of one answer: each is a column of the query."""
NAMED_ROWS = 100
"""The first rows of a page are asked for their metrics; then the page itself says whether it has others."""
_ARRAY_HEADER_BYTES = 20
"""Of an array in PostgreSQL's binary form with one dimension: dimensions, flags, type, length, lower bound, 4 bytes each."""

_SOURCES = {"training": ("trial_metrics", ""), "validation": ("trial_validations", "length")}


class TooManyMetrics(Exception):
    """`str(error)` is one sentence for the user."""


@dataclass(frozen=True)
class Page:
    npy: bytes
    rows: int
    more: bool


class MetricTables(Fetching):
    async def page(
        self, kind: Kind, experiment_id: int, trial: int | None, after: tuple[int, int], names: Sequence[str], limit: int
    ) -> Page:
        """At most `limit` rows behind (trial number, batches), by these. `names`: which metrics; none: all that the page has. A
        metric that a row lacks is NaN there. Raises TooManyMetrics."""
        table, length = _SOURCES[kind]
        rows = f"""SELECT * FROM {table} WHERE experiment_id = $1 AND (trial_number, batches) > ($2, $3)
            AND ($4::int IS NULL OR trial_number = $4) ORDER BY trial_number, batches LIMIT $5"""
        asked = (experiment_id, after[0] if trial is None else max(after[0], trial - 1), after[1], trial)
        found = list(names) or await self._names(rows, *asked, min(limit, NAMED_ROWS))
        while True:
            count = min(limit, max(1, VALUES_MAX // (len(found) + 4)))
            fixed = [("trial", "trial_number", "i4"), ("batches", "batches", "i8"), ("time_us", "time_us", "i8")]
            fixed += [("length", length, "i8")] if length else []
            columns = [f"array_send(array_agg({column}))" for _, column, _ in fixed]
            columns += [
                f"array_send(array_agg(coalesce((metrics->>${at}::text)::float8, 'NaN')))" for at in range(7, 7 + len(found))
            ]
            query = f"SELECT count(*), bool_or((metrics - $6::text[]) <> '{{}}'), {', '.join(columns)} FROM ({rows}) page"
            [row] = await self._rows_by_place(query, *asked, count, found, *found)
            if names or not row[1]:
                break
            found = await self._names(rows, *asked, count)  # later rows have metrics that the first ones lack
        types = [(name, kind) for name, _, kind in fixed] + [(f"metrics.{name}", "f8") for name in found]
        npy = await asyncio.to_thread(_npy, types, row[2:], row[0])
        return Page(npy, row[0], row[0] == count)

    async def _names(self, rows: str, *values: Any) -> list[str]:
        query = f"SELECT DISTINCT jsonb_object_keys(metrics) AS name FROM ({rows}) page ORDER BY name LIMIT {METRICS_MAX + 1}"
        names = [str(row["name"]) for row in await self._rows(query, *values)]
        if len(names) > METRICS_MAX:
            raise TooManyMetrics(f"There are more than {METRICS_MAX} metrics: name the one that you want with ?metric=NAME.")
        return names

    async def _rows_by_place(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        rows = await self._again(lambda: self._pool.fetch(query, *values))
        return [tuple(row) for row in rows]


def _npy(types: Sequence[tuple[str, str]], columns: Sequence[bytes | None], rows: int) -> bytes:
    """One record per row, little-endian."""
    import numpy

    table = numpy.empty(rows, [(name, f"<{kind}") for name, kind in types])
    for (name, kind), column in zip(types, columns, strict=True):
        if column is not None:
            element = [("bytes", ">i4"), ("value", f">{kind}")]
            table[name] = numpy.frombuffer(column, element, rows, _ARRAY_HEADER_BYTES)["value"]
    file = io.BytesIO()
    numpy.lib.format.write_array(file, table, version=(3, 0), allow_pickle=False)
    return file.getvalue()
