"""Layouts of training metrics in PostgreSQL, beside each other: `python benchmarks/metric_layouts.py`.

A million points of one metric of one trial, in single precision, a point a batch, written 1,000 at a time:

rows      a row per point, its metrics as jsonb (what Tenuto did before)
arrays    4,096 points a row, as arrays of bigint and double precision, compressed as PostgreSQL likes
bytes     4,096 points a row, packed as `kernel/metrics/packing.py` does, without buckets
buckets   the same with them: what Tenuto does

Seconds to write, bytes a point, and milliseconds for the extremes of 1,000 columns of the whole and of a twentieth, from the
query to the arrays that are drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
from figures import figure, parse

from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.metrics import packing
from tenuto.kernel.metrics.columns import POINTS_MAX, Columns
from tenuto.kernel.metrics.thinning import exponent_for, extremes
from tenuto.kernel.migrations import migrate
from tenuto.services.gateway.trials.queries.metric_chunks import MetricChunks
from tenuto.services.tracker.projections.metrics import write_sets

COUNT, PIXELS, REPORT, REPEATS = 1_000_000, 1_000, 1_000, 7


def curve(count: int) -> Columns:
    rng = np.random.default_rng(1)
    values = (1 / np.sqrt(np.arange(1, count + 1)) + rng.normal(0, 0.05, count)).astype(np.float32).astype(np.float64)
    batches = np.arange(count)
    times = 1_700_000_000_000_000 + np.cumsum(rng.integers(45_000, 60_000, count))
    return Columns(batches, times, np.ones_like(batches), ("loss",), values[None])


class Layout:
    table = ""
    make = ""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self.pool = pool

    async def write(self, part: Columns) -> None:
        raise NotImplementedError

    async def draw(self, first: int, last: int) -> int:
        """Number of points."""
        raise NotImplementedError


def drawn(batches: Any, values: Any, first: int, last: int) -> int:
    columns = batches >> exponent_for(first, last, PIXELS)
    low, high = extremes(columns, values)
    return len(low) + len(high)


class Rows(Layout):
    table = "point_rows"
    make = "CREATE TABLE point_rows (e bigint, t int, b bigint, a text, u bigint, m jsonb, PRIMARY KEY (e, t, b))"

    async def write(self, part: Columns) -> None:
        metrics = [json.dumps({"loss": value}) for value in part.values[0].tolist()]
        await self.pool.execute(
            """INSERT INTO point_rows
               SELECT 1, 1, b, '1-1-1', u, m FROM unnest($1::bigint[], $2::bigint[], $3::jsonb[]) x (b, u, m)""",
            part.batches.tolist(), part.times_us.tolist(), metrics,
        )  # fmt: skip

    async def draw(self, first: int, last: int) -> int:
        query = "SELECT b, (m ->> 'loss')::float8 FROM point_rows WHERE e = 1 AND t = 1 AND b BETWEEN $1 AND $2 ORDER BY b"
        rows = await self.pool.fetch(query, first, last)
        return drawn(np.array([row[0] for row in rows]), np.array([row[1] for row in rows]), first, last)


class Arrays(Layout):
    table = "point_arrays"
    make = """CREATE TABLE point_arrays (e bigint, t int, name text, first bigint, b bigint[], u bigint[], v float8[],
        PRIMARY KEY (e, t, name, first))"""

    async def write(self, part: Columns) -> None:
        first = int(part.batches[0]) // POINTS_MAX * POINTS_MAX
        await self.pool.execute(
            """INSERT INTO point_arrays VALUES (1, 1, 'loss', $1, $2, $3, $4) ON CONFLICT (e, t, name, first)
               DO UPDATE SET b = point_arrays.b || $2, u = point_arrays.u || $3, v = point_arrays.v || $4""",
            first, part.batches.tolist(), part.times_us.tolist(), part.values[0].tolist(),
        )  # fmt: skip

    async def draw(self, first: int, last: int) -> int:
        query = """SELECT cardinality(b), array_send(b), array_send(v) FROM point_arrays
            WHERE e = 1 AND t = 1 AND name = 'loss' AND first BETWEEN $1 AND $2 ORDER BY first"""
        rows = await self.pool.fetch(query, first - POINTS_MAX, last)
        element = [("bytes", ">i4"), ("value", ">i8")]
        batches = np.concatenate([np.frombuffer(row[1], element, row[0], 20)["value"] for row in rows]).astype(np.int64)
        element[1] = ("value", ">f8")
        values = np.concatenate([np.frombuffer(row[2], element, row[0], 20)["value"] for row in rows]).astype(np.float64)
        return drawn(batches, values, first, last)


class Buckets(Layout):
    table = "trial_metric_chunks"

    async def write(self, part: Columns) -> None:
        await write_sets(self.pool, {(1, 1): [part]})

    async def draw(self, first: int, last: int) -> int:
        picture = await MetricChunks(self.pool).picture(1, [1], ["loss"], PIXELS, (first, last), None)
        return len(picture.curves[0][3])


class Bytes(Buckets):
    async def write(self, part: Columns) -> None:
        before, packing.SUMMED_POINTS_MIN = packing.SUMMED_POINTS_MIN, 1 << 40
        try:
            await super().write(part)
        finally:
            packing.SUMMED_POINTS_MIN = before


async def median_ms(work: Callable[[], Awaitable[object]], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1e3


async def main(count: int, repeats: int) -> None:
    rows_ms = 0.0
    with tempfile.TemporaryDirectory(prefix="tenuto-layouts-") as name:
        Path(name).chmod(0o711)
        server = PostgresServer(Path(name) / "postgres")
        await server.start()
        try:
            await migrate(server.owner_url)
            pool = await asyncpg.create_pool(server.owner_url, min_size=1, max_size=1)
            whole = curve(count)
            for kind in (Rows, Arrays, Bytes, Buckets):
                layout = kind(pool)
                await pool.execute(layout.make or "TRUNCATE trial_metric_chunks")
                begin = time.perf_counter()
                for at in range(0, count, REPORT):
                    await layout.write(whole.part(at, at + REPORT))
                seconds = time.perf_counter() - begin
                await pool.execute(f"VACUUM FULL ANALYZE {layout.table}")
                size = await pool.fetchval(f"SELECT pg_total_relation_size('{layout.table}')")
                all_ms = await median_ms(lambda layout=layout: layout.draw(0, count - 1), repeats)  # type: ignore[misc]
                some_ms = await median_ms(lambda layout=layout: layout.draw(count * 8 // 20, count * 9 // 20), repeats)  # type: ignore[misc]
                print(
                    f"{kind.__name__.lower():8} write {seconds:6.1f} s   {size / count:6.1f} bytes a point   "
                    f"whole {all_ms:7.1f} ms   a twentieth {some_ms:6.1f} ms",
                    flush=True,
                )
                rows_ms = rows_ms or all_ms
                figure(f"the whole, {kind.__name__.lower()}", all_ms, "ms", beside="a row per point", of=rows_ms)
            await pool.close()
        finally:
            await server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=COUNT)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parse(parser, points=2 * REPORT, repeats=1)
    asyncio.run(main(options.points, options.repeats))
