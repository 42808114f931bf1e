"""Metrics of an experiment by columns, for programs that load them into a data frame, in a tenth of the time that JSON takes.

Training metrics are stored by columns. Of validations PostgreSQL collects each column of a page into one array, so that many rows
cross the connection as a few dozen values and none of them is ever a Python object. The answer is a file of numpy's own format
(.npy), which many tools read.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tenuto.kernel.metrics.columns import Columns
from tenuto.services.gateway.trials.queries.metric_chunks import MetricChunks

Kind = Literal["training", "validation"]
ROWS_MAX = 250_000
VALUES_MAX = 2_500_000
"""Most values of one answer, 20 MB: with many metrics it has fewer rows."""
METRICS_MAX = 500
"""Most metrics of one answer: each is a column of the query."""
NAMED_ROWS = 100
"""Number of first rows whose metrics are looked up; the page itself then shows if other rows have further ones."""
_ARRAY_HEADER_BYTES = 20
"""Header of an array with one dimension in PostgreSQL's binary form: dimensions, flags, type, length, lower bound, 4 bytes
each."""
_FIXED = [("trial", "trial_number", "i4"), ("batches", "batches", "i8"), ("time_us", "time_us", "i8")]
"""Columns of each row beside its metrics: name, column of the table, and type."""


class TooManyMetrics(Exception):
    """`str(error)` is one sentence for the user."""


@dataclass(frozen=True)
class MetricPage:
    npy: bytes
    rows: int
    more: bool


class MetricTables(MetricChunks):
    async def page(
        self, kind: Kind, experiment_id: int, trial: int | None, after: tuple[int, int], names: Sequence[str], limit: int
    ) -> MetricPage:
        """Rows behind (trial number, batches), ordered by these, at most `limit`. `names`: metrics to read; empty: all that the
        page has. A metric that a row lacks is NaN there. Raises TooManyMetrics."""
        if kind == "training":
            return await self._training(experiment_id, trial, after, names, limit)
        return await self._validations(experiment_id, trial, after, names, limit)

    async def _training(
        self, experiment_id: int, trial: int | None, after: tuple[int, int], names: Sequence[str], limit: int
    ) -> MetricPage:
        parts: list[tuple[int, Columns]] = []
        found, rows = set(names), 0
        async for number, columns in self.columns(experiment_id, trial, after, names or None):
            part = columns.part(0, limit - rows) if len(columns) > limit - rows else columns
            together = found if names else found | set(part.names)
            allowed = min(limit, max(1, VALUES_MAX // (len(together) + 4)))
            if rows + len(part) > allowed:
                part = part.part(0, max(allowed - rows, 0))
                together = found if names else found | set(part.names)
            found = together
            if len(found) > METRICS_MAX:
                raise _too_many()
            parts, rows = [*parts, (number, part)], rows + len(part)
            if rows >= allowed:
                return MetricPage(await asyncio.to_thread(_npy_of, parts, sorted(found), rows), rows, True)
        return MetricPage(await asyncio.to_thread(_npy_of, parts, sorted(found), rows), rows, False)

    async def _validations(
        self, experiment_id: int, trial: int | None, after: tuple[int, int], names: Sequence[str], limit: int
    ) -> MetricPage:
        rows = """SELECT * FROM trial_validations WHERE experiment_id = $1 AND (trial_number, batches) > ($2, $3)
            AND ($4::int IS NULL OR trial_number = $4) ORDER BY trial_number, batches LIMIT $5"""
        asked = (experiment_id, after[0] if trial is None else max(after[0], trial - 1), after[1], trial)
        found = list(names) or await self._names(rows, *asked, min(limit, NAMED_ROWS))
        while True:
            count = min(limit, max(1, VALUES_MAX // (len(found) + 4)))
            fixed = [*_FIXED, ("length", "length", "i8")]
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
        return MetricPage(npy, row[0], row[0] == count)

    async def _names(self, rows: str, *values: Any) -> list[str]:
        query = f"SELECT DISTINCT jsonb_object_keys(metrics) AS name FROM ({rows}) page ORDER BY name LIMIT {METRICS_MAX + 1}"
        names = [str(row["name"]) for row in await self._rows(query, *values)]
        if len(names) > METRICS_MAX:
            raise _too_many()
        return names

    async def _rows_by_place(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        rows = await self._again(lambda: self._pool.fetch(query, *values))
        return [tuple(row) for row in rows]


def _too_many() -> TooManyMetrics:
    return TooManyMetrics(f"There are more than {METRICS_MAX} metrics: name the one that you want with ?metric=NAME.")


def _npy_of(parts: Sequence[tuple[int, Columns]], names: Sequence[str], rows: int) -> bytes:
    """Bytes of a .npy file with one record per point."""
    import numpy

    fixed = [(name, f"<{kind}") for name, _, kind in _FIXED]
    table = numpy.empty(rows, [*fixed, *((f"metrics.{name}", "<f8") for name in names)])
    for name in names:
        table[f"metrics.{name}"] = numpy.nan
    begin = 0
    for trial, columns in parts:
        place = slice(begin, begin + len(columns))
        table["trial"][place], table["batches"][place], table["time_us"][place] = trial, columns.batches, columns.times_us
        for name, values in zip(columns.names, columns.values, strict=True):
            table[f"metrics.{name}"][place] = values
        begin = place.stop
    return _file(table)


def _npy(types: Sequence[tuple[str, str]], columns: Sequence[bytes | None], rows: int) -> bytes:
    """Bytes of a .npy file with one record per row, little-endian."""
    import numpy

    table = numpy.empty(rows, [(name, f"<{kind}") for name, kind in types])
    for (name, kind), column in zip(types, columns, strict=True):
        if column is not None:
            element = [("bytes", ">i4"), ("value", f">{kind}")]
            table[name] = numpy.frombuffer(column, element, rows, _ARRAY_HEADER_BYTES)["value"]
    return _file(table)


def _file(table: Any) -> bytes:
    import numpy

    file = io.BytesIO()
    numpy.lib.format.write_array(file, table, version=(3, 0), allow_pickle=False)
    return file.getvalue()
