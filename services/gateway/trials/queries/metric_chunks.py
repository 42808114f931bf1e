"""Training metrics from their chunks: as points, by columns, and thinned for pictures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import asyncpg

from tenuto.kernel.metrics.columns import Columns, Point, sets_of
from tenuto.kernel.metrics.packing import unpacked, unpacked_numbers, unpacked_steps
from tenuto.kernel.metrics.thinning import EXTREME, Curve, exponent_for, of_buckets, of_points, thinned
from tenuto.services.gateway.read_models import rows as bounds
from tenuto.services.gateway.read_models.rows import Fetching, Rows
from tenuto.services.gateway.trials.views import MetricPointView

CHUNKS_AT_ONCE = 32
"""Most chunks read by one query: 64 MB of the largest ones."""
VALUES_AT_ONCE = 4_000_000
"""Most numbers of chunks that one query for curves reads, unless one trial alone has more."""
NUMBER_CHARACTERS = 20
"""Usual number of characters of a number and its punctuation in JSON."""
UNMANAGED_AT_ONCE = 10_000
"""Most steps of unmanaged runs read by one query."""
CURVE_TRIALS_MAX = 1_000
"""Most trials of one answer with curves."""

_CHUNKS = f"""
SELECT trial_number, last_batches, points, wide, names, steps, numbers FROM trial_metric_chunks
WHERE experiment_id = $1 AND trial_number >= $3 AND ($2::int IS NULL OR trial_number = $2)
    AND (trial_number > $3 OR last_batches > $4)
ORDER BY trial_number, first_batches LIMIT {CHUNKS_AT_ONCE}"""
_UNMANAGED = f"""
SELECT trial_number, batches, time_us, metrics FROM (
    SELECT trial_number, step AS batches, 1000 * max(time_ms) AS time_us,
        jsonb_object_agg(name, value ORDER BY time_ms, value) AS metrics
    FROM unmanaged_metrics
    WHERE experiment_id = $1 AND trial_number >= $3 AND ($2::int IS NULL OR trial_number = $2) AND step >= 0
        AND (trial_number, step) > ($3, $4) AND ($5::text[] IS NULL OR name = ANY($5))
    GROUP BY trial_number, step ORDER BY trial_number, step LIMIT {UNMANAGED_AT_ONCE}
) p"""
# The points of a run by its steps, the newest value of a metric standing.
_EXTENTS = f"""
SELECT w.last_number, t.* FROM metric_writes w LEFT JOIN (
    SELECT trial_number, min(first_batches) AS first_batches, max(last_batches) AS last_batches, sum(points) AS points,
        min(first_batches) FILTER (WHERE write_number > $3) AS changed
    FROM trial_metric_chunks WHERE experiment_id = $1 AND ($2::int[] IS NULL OR trial_number = ANY($2))
    GROUP BY trial_number ORDER BY trial_number LIMIT {CURVE_TRIALS_MAX + 1}
) t ON true"""
_NAMES = """
SELECT DISTINCT unnest(names) AS name FROM trial_metric_chunks
WHERE experiment_id = $1 AND trial_number = ANY($2::int[]) ORDER BY name"""
# Of each chunk either its points or its buckets, the widest that lie in one column of the picture; and of these the parts that
# belong to the metrics that are wanted.
_CURVES = f"""
SELECT c.trial_number, c.points, c.coarse_exponent <= $4 OR c.fine_exponent <= $4 AS summed,
    CASE WHEN c.fine_exponent > $4 THEN c.steps END AS steps,
    ARRAY(SELECT CASE
        WHEN c.coarse_exponent <= $4 THEN
            substring(c.coarse FROM 1 + {EXTREME.itemsize} * c.coarse_count * (p.at - 1) FOR {EXTREME.itemsize} * c.coarse_count)
        WHEN c.fine_exponent <= $4 THEN
            substring(c.fine FROM 1 + {EXTREME.itemsize} * c.fine_count * (p.at - 1) FOR {EXTREME.itemsize} * c.fine_count)
        WHEN p.at <= c.wide THEN substring(c.numbers FROM 1 + 8 * c.points * (p.at - 1) FOR 8 * c.points)
        ELSE substring(c.numbers FROM 1 + 4 * c.points * (c.wide + p.at - 1) FOR 4 * c.points) END
        FROM (SELECT array_position(c.names, name) AS at, place FROM unnest($5::text[]) WITH ORDINALITY n (name, place)) p
        ORDER BY p.place) AS parts
FROM unnest($2::int[], $3::bigint[]) AS t (trial_number, since) JOIN trial_metric_chunks c
    ON c.experiment_id = $1 AND c.trial_number = t.trial_number AND c.last_batches >= t.since AND c.first_batches <= $6
ORDER BY c.trial_number, c.first_batches"""


@dataclass(frozen=True)
class SeenCurves:
    """Part of the curves that a client has: everything up to a write, in columns of this width from these batches on."""

    write_number: int
    exponent: int
    first: int


@dataclass(frozen=True)
class CurvesPicture:
    seen: SeenCurves
    """Part that the client has after this answer; if the next question names it, only later changes are answered."""
    end: int
    """The columns end before these batches."""
    whole: bool
    """False: the curves replace those that the client has from `since` on; missing ones have not changed."""
    more_trials: bool
    names: tuple[str, ...]
    """Names of all metrics of these trials; empty if the picture is not whole."""
    curves: tuple[tuple[int, str, int, Curve], ...]
    """(trial number, metric, since, points) of each curve."""


class MetricChunks(Fetching):
    async def points(
        self, experiment_id: int, trial_number: int | None, after: tuple[int, int], limit: int
    ) -> Rows[MetricPointView]:
        """Points of metrics, in order. `after`: trial number and batches of the last one of the page before."""
        found: list[dict[str, Any]] = []
        size_bytes = 0
        async for number, columns in self.columns(experiment_id, trial_number, after):
            characters = sum(len(name) + NUMBER_CHARACTERS for name in columns.names) + 3 * NUMBER_CHARACTERS
            room = max((bounds.ROWS_BYTES_MAX - size_bytes) // characters, 0) + 1
            count = min(limit - len(found), room, len(columns))
            size_bytes += count * characters
            trial = {"trial_id": f"{experiment_id}-{number}"}
            pairs = zip(columns.batches[:count].tolist(), columns.times_us[:count].tolist(), strict=True)
            found += [
                trial | {"batches": batches, "time_us": time_us, "metrics": (columns, index)}
                for index, (batches, time_us) in enumerate(pairs)
            ]
            if len(found) == limit or count == room:
                return Rows(found, _point, more=True)
        return Rows(found, _point)

    async def columns(
        self, experiment_id: int, trial_number: int | None, after: tuple[int, int], only: Collection[str] | None = None
    ) -> AsyncIterator[tuple[int, Columns]]:
        """Trial numbers and points behind `after`, in this order. `only`: these metrics."""
        trial, batches = after if trial_number is None else max(after, (trial_number, -(2**63)))
        if await self._is_unmanaged(experiment_id):
            async for number, points in self._unmanaged(experiment_id, trial_number, (trial, batches), only):
                yield number, points
            return
        while True:
            rows = await self._rows(_CHUNKS, experiment_id, trial_number, trial, batches)
            for row in rows:
                whole = unpacked(row["points"], row["wide"], row["names"], row["steps"], row["numbers"], only)
                # Chunks may have been joined since the page before.
                begin = int(whole.batches.searchsorted(batches, side="right")) if row["trial_number"] == trial else 0
                trial, batches = row["trial_number"], row["last_batches"]
                yield trial, whole.part(begin, len(whole)) if begin else whole
            if len(rows) < CHUNKS_AT_ONCE:
                return

    async def _is_unmanaged(self, experiment_id: int) -> bool:
        query = "SELECT 1 FROM experiments WHERE experiment_id = $1 AND state = 'unmanaged'"
        return bool(await self._rows(query, experiment_id))

    async def _unmanaged(
        self, experiment_id: int, trial_number: int | None, after: tuple[int, int], only: Collection[str] | None
    ) -> AsyncIterator[tuple[int, Columns]]:
        """Same as `columns`, but of the points that programs logged, which are kept as they came."""
        while True:
            names = None if only is None else list(only)
            rows = await self._rows(_UNMANAGED, experiment_id, trial_number, *after, names)
            for number, some in groupby(rows, lambda row: int(row["trial_number"])):
                points = [Point(row["batches"], row["time_us"], 0, _numbers(row["metrics"])) for row in some]
                for columns in await asyncio.to_thread(lambda points=points: list(sets_of(points))):  # type: ignore[misc]
                    yield number, columns
            if len(rows) < UNMANAGED_AT_ONCE:
                return
            after = rows[-1]["trial_number"], rows[-1]["batches"]

    async def _unmanaged_picture(
        self,
        experiment_id: int,
        trials: Sequence[int] | None,
        metrics: Sequence[str],
        pixels: int,
        span: tuple[int | None, int | None],
    ) -> CurvesPicture:
        """Picture of unmanaged runs; always whole, as there are no writes to go on from."""
        found: dict[int, list[Columns]] = {}
        async for number, columns in self.columns(experiment_id, None, (0, -1)):
            if trials is None or number in trials:
                found.setdefault(number, []).append(columns)
        more_trials, kept = len(found) > CURVE_TRIALS_MAX, dict(list(found.items())[:CURVE_TRIALS_MAX])
        every = [columns for some in kept.values() for columns in some]
        first = min((int(columns.batches[0]) for columns in every), default=0) if span[0] is None else span[0]
        last = max((int(columns.batches[-1]) for columns in every), default=first) if span[1] is None else span[1]
        exponent = exponent_for(first, last, pixels)
        first, end = first >> exponent << exponent, ((last >> exponent) + 1) << exponent
        names = tuple(sorted({name for columns in every for name in columns.names}))
        curves = []
        for number, some in kept.items():
            for metric in metrics:
                parts = [
                    of_points(columns.batches, columns.times_us, columns.values[columns.names.index(metric)])
                    for columns in some
                    if metric in columns.names
                ]
                if parts and len(curve := await asyncio.to_thread(thinned, parts, exponent, first, end)):
                    curves.append((number, metric, first, curve))
        return CurvesPicture(SeenCurves(0, exponent, first), end, True, more_trials, names, tuple(curves))

    async def trial_count(self, experiment_id: int) -> int:
        """Number of trials in one answer with curves of all trials that have metrics."""
        query = f"""SELECT count(*) AS trials FROM (SELECT 1 FROM trials WHERE experiment_id = $1
            LIMIT {CURVE_TRIALS_MAX}) t"""
        [row] = await self._rows(query, experiment_id)
        return int(row["trials"])

    async def picture(
        self,
        experiment_id: int,
        trials: Sequence[int] | None,
        metrics: Sequence[str],
        pixels: int,
        span: tuple[int | None, int | None],
        seen: SeenCurves | None,
    ) -> CurvesPicture:
        """Picture of curves. `trials`: None: all. `span`: first and last batches; None: as far as there are points."""
        if await self._is_unmanaged(experiment_id):
            return await self._unmanaged_picture(experiment_id, trials, metrics, pixels, span)
        asked = None if trials is None else list(trials)
        extents = await self._rows(_EXTENTS, experiment_id, asked, seen.write_number if seen else 0)
        written = extents[0]["last_number"]
        found = [row for row in extents if row["trial_number"] is not None]
        more_trials, found = len(found) > CURVE_TRIALS_MAX, found[:CURVE_TRIALS_MAX]
        first = min((row["first_batches"] for row in found), default=0) if span[0] is None else span[0]
        last = max((row["last_batches"] for row in found), default=first) if span[1] is None else span[1]
        exponent = exponent_for(first, last, pixels)
        first, end = first >> exponent << exponent, ((last >> exponent) + 1) << exponent
        now = SeenCurves(written, exponent, first)
        whole = seen is None or (seen.exponent, seen.first) != (exponent, first)
        names: tuple[str, ...] = ()
        if whole:
            numbers = [row["trial_number"] for row in found]
            names = tuple(row["name"] for row in await self._rows(_NAMES, experiment_id, numbers))
        wanted = [
            (row["trial_number"], first if whole else max(first, row["changed"] >> exponent << exponent), row["points"])
            for row in found
            if whole or row["changed"] is not None
        ]
        curves: list[tuple[int, str, int, Curve]] = []
        for some in _at_once(wanted, len(metrics)) if metrics else ():
            columns = list(map(list, zip(*((trial, since) for trial, since, _ in some), strict=True)))
            rows = await self._again(
                lambda columns=columns: self._pool.fetch(  # type: ignore[misc]
                    _CURVES, experiment_id, *columns, exponent, list(metrics), end - 1
                )
            )
            since = {trial: since for trial, since, _ in some}
            curves += await asyncio.to_thread(_curves, rows, metrics, since, exponent, end)
        return CurvesPicture(now, end, whole, more_trials, names, tuple(curves))


def _at_once(wanted: Sequence[tuple[int, int, int]], metrics: int) -> list[list[tuple[int, int, int]]]:
    found: list[list[tuple[int, int, int]]] = []
    values = 0
    for item in wanted:
        values += item[2] * metrics
        if not found or values > VALUES_AT_ONCE:
            found.append([])
            values = item[2] * metrics
        found[-1].append(item)
    return found


def _curves(
    rows: Sequence[asyncpg.Record], metrics: Sequence[str], since: dict[int, int], exponent: int, end: int
) -> list[tuple[int, str, int, Curve]]:
    """Curves that have points."""
    parts: dict[tuple[int, str], list[Curve]] = {(trial, metric): [] for trial in since for metric in metrics}
    for row in rows:
        steps = None if row["summed"] else unpacked_steps(row["points"], row["steps"])
        for metric, data in zip(metrics, row["parts"], strict=True):
            if data is None:
                continue
            if steps is None:
                part = of_buckets(data)
            else:
                part = of_points(steps[0], steps[1], unpacked_numbers(row["points"], data))
            parts[row["trial_number"], metric].append(part)
    found = (
        (trial, metric, since[trial], thinned(some, exponent, since[trial], end))
        for (trial, metric), some in parts.items()
        if some
    )
    return [item for item in found if len(item[3])]


def _numbers(metrics: str) -> dict[str, float]:
    return {name: float(value) for name, value in json.loads(metrics).items()}


def _point(row: dict[str, Any]) -> MetricPointView:
    columns, index = row.pop("metrics")
    return MetricPointView(**row, metrics=columns.metrics(index))
