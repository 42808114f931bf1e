"""Writes training metrics, as chunks of columns. A batch is one transaction; what comes twice is stored once.

The newest measurement of a batch stands, whichever arrives last: a late report of an earlier run does not overwrite it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

import asyncpg

from tenuto.kernel.metrics.columns import Columns, Point, cut, merged, sets_of
from tenuto.kernel.metrics.extents import TAIL_CHUNKS, Change, Extent, changes
from tenuto.kernel.metrics.packing import CHUNK_FIELDS, MetricChunk, packed, unpacked
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.reports import MetricsRead
from tenuto.services.tracker.projections import trial_number

Trial = tuple[int, int]
"""Experiment id and trial number."""
TRIALS_AT_ONCE = 50
"""Trials whose last chunks are in memory at once: a chunk has up to 2 MB, as a rule some kilobytes."""
IDLE_SECONDS_MAX = 10
"""A write of another instance waits for this one's. One that was stopped in the middle is ended by the server after this time."""

# Writes take turns here, so two instances never change one chunk at once, and write numbers grow in the order of commits.
_BEGIN = f"""UPDATE metric_writes SET last_number = last_number + 1
RETURNING last_number, set_config('idle_in_transaction_session_timeout', '{IDLE_SECONDS_MAX}s', true)"""
# All chunks from the one in which the trial's first new point is, and those that may be joined at its end.
_EXTENTS = f"""
SELECT c.experiment_id, c.trial_number, c.first_batches, c.last_batches, c.points, cardinality(c.names) AS metrics
FROM (
    SELECT t.*, least(
        coalesce((SELECT max(first_batches) FROM trial_metric_chunks c WHERE c.experiment_id = t.experiment_id
            AND c.trial_number = t.trial_number AND c.first_batches <= t.low), t.low),
        coalesce((SELECT first_batches FROM trial_metric_chunks c WHERE c.experiment_id = t.experiment_id
            AND c.trial_number = t.trial_number ORDER BY first_batches DESC OFFSET {TAIL_CHUNKS - 1} LIMIT 1),
            '{-(2**63)}'::bigint)) AS begin
    FROM unnest($1::bigint[], $2::int[], $3::bigint[]) AS t (experiment_id, trial_number, low)
) t JOIN trial_metric_chunks c ON c.experiment_id = t.experiment_id AND c.trial_number = t.trial_number
    AND c.first_batches >= t.begin
ORDER BY c.experiment_id, c.trial_number, c.first_batches"""
_CHUNKS = """
SELECT experiment_id, trial_number, first_batches, points, wide, names, steps, numbers FROM trial_metric_chunks
JOIN unnest($1::bigint[], $2::int[], $3::bigint[]) AS t (experiment_id, trial_number, first_batches)
USING (experiment_id, trial_number, first_batches)"""
_DELETE = """
DELETE FROM trial_metric_chunks c USING unnest($1::bigint[], $2::int[], $3::bigint[]) AS t (experiment_id, trial_number, first)
WHERE c.experiment_id = t.experiment_id AND c.trial_number = t.trial_number AND c.first_batches = t.first"""
_COLUMNS = ("experiment_id", "trial_number", "write_number", *CHUNK_FIELDS)
_UPSERT = f"""
INSERT INTO trial_metric_chunks ({", ".join(_COLUMNS)})
VALUES ({", ".join(f"${place}" for place in range(1, len(_COLUMNS) + 1))})
ON CONFLICT (experiment_id, trial_number, first_batches) DO UPDATE
SET {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[2:])}"""


async def write_metrics(pool: asyncpg.Pool, reports: Sequence[MetricsRead]) -> None:
    """Writes metrics in one transaction."""
    points: dict[Trial, list[Point]] = {}
    for report in reports:
        run = int(report.allocation_id.rpartition("-")[2])
        trial = experiment_of(report.trial_id), trial_number(report.trial_id)
        of_trial = points.setdefault(trial, [])
        of_trial.extend(Point(point["batches"], point["time_us"], run, point["metrics"]) for point in report.points)
    await write_sets(pool, {trial: sets_of(some) for trial, some in sorted(points.items())})


async def write_sets(pool: asyncpg.Pool, sets: Mapping[Trial, Iterable[Columns]]) -> None:
    """Writes sets in one transaction, trials in order. A later set of a trial is the later one to arrive."""
    rounds = _rounds(sets)
    if (some := next(rounds, None)) is None:
        return
    async with pool.acquire() as connection, connection.transaction():
        number = await connection.fetchval(_BEGIN)
        while some is not None:
            await _write(connection, number, some)
            some = next(rounds, None)


async def _write(connection: asyncpg.Connection, number: int, new: Mapping[Trial, Columns]) -> None:
    """`number`: of this write."""
    extents = await _extents(connection, new)
    wanted = {trial: changes(extents[trial], columns) for trial, columns in new.items()}
    known = await _read(
        connection,
        [
            (trial, extents[trial][chunk].first)
            for trial, some in wanted.items()
            for change in some
            for chunk in range(change.chunk, change.chunk_end)
        ],
    )
    deleted: list[tuple[int, int, int]] = []
    written: list[tuple[object, ...]] = []
    for trial, some in wanted.items():
        for change in some:
            old = [(trial, extents[trial][chunk].first) for chunk in range(change.chunk, change.chunk_end)]
            made = [packed(part) for part in cut(_together([known[key] for key in old], new[trial], change))]
            before = [known[key] for key in old]
            if len(made) == len(before) and all(map(_is_same, made, before)):
                continue  # all of it was stored before
            kept = {chunk.first_batches for chunk in made}
            deleted += [(*trial, first) for _, first in old if first not in kept]
            written += [(*trial, number, *(_value(chunk, name) for name in CHUNK_FIELDS)) for chunk in made]
    if deleted:
        await connection.execute(_DELETE, *zip(*deleted, strict=True))
    if written:
        await connection.executemany(_UPSERT, written)


def _rounds(sets: Mapping[Trial, Iterable[Columns]]) -> Iterator[dict[Trial, Columns]]:
    """One set of columns of each trial, then a second one of those that have more, and so on. Made only when it is its turn: of
    many metrics each may be megabytes."""
    for row in zip_longest(*sets.values()):
        items = [(trial, columns) for trial, columns in zip(sets, row, strict=True) if columns is not None]
        for begin in range(0, len(items), TRIALS_AT_ONCE):
            yield dict(items[begin : begin + TRIALS_AT_ONCE])


async def _extents(connection: asyncpg.Connection, new: Mapping[Trial, Columns]) -> dict[Trial, list[Extent]]:
    asked = [(*trial, int(columns.batches[0])) for trial, columns in new.items()]
    found: dict[Trial, list[Extent]] = {trial: [] for trial in new}
    for row in await connection.fetch(_EXTENTS, *zip(*asked, strict=True)):
        trial = row["experiment_id"], row["trial_number"]
        found[trial].append(Extent(row["first_batches"], row["last_batches"], row["points"], row["metrics"]))
    return found


Known = tuple[Columns, bytes, bytes]
"""A chunk that is stored: its points, and their bytes (`steps`, `numbers`)."""


async def _read(connection: asyncpg.Connection, keys: Sequence[tuple[Trial, int]]) -> dict[tuple[Trial, int], Known]:
    if not keys:
        return {}
    asked = [(*trial, first) for trial, first in keys]
    rows = await connection.fetch(_CHUNKS, *zip(*asked, strict=True))
    return {
        ((row["experiment_id"], row["trial_number"]), row["first_batches"]): (
            unpacked(row["points"], row["wide"], row["names"], row["steps"], row["numbers"]),
            row["steps"],
            row["numbers"],
        )
        for row in rows
    }


def _together(old: Sequence[Known], new: Columns, change: Change) -> Columns:
    whole = [*(columns for columns, _, _ in old), new.part(change.new, change.new_end)]
    result = whole[0]
    for columns in whole[1:]:
        result = merged(result, columns)
    return result


def _is_same(made: MetricChunk, before: Known) -> bool:
    columns, steps, numbers = before
    return (tuple(sorted(made.names)), made.steps, made.numbers) == (columns.names, steps, numbers)


def _value(chunk: MetricChunk, name: str) -> object:
    value = getattr(chunk, name)
    return list(value) if isinstance(value, tuple) else value
