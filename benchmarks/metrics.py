"""Training metrics: pictures over REST, and ingest beside MLflow's: `python benchmarks/metrics.py [--mlflow PYTHON]`.

Pictures: a real gateway and PostgreSQL; one trial with a million points, of which random ranges are asked for at 1,000 pixels,
and 200 trials with 1,000 points each, all in one request. The whole request counts, until its bytes have arrived. The reference
is PostgreSQL's own min and max of the same columns over plain rows of numbers, in the same run.

Ingest: reports of 1,000 points of one metric, as an agent publishes them, through NATS and the tracker into PostgreSQL, until
they are committed; and as many points by `log-batch` of MLflow's server, 1,000 a call, on the same PostgreSQL. Rounds alternate.
PYTHON is that of an environment with `mlflow` and `psycopg2-binary`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import httpx
import numpy
from figures import figure, parse
from report_world import World as ReportWorld
from report_world import world as report_world

from tenuto.embedded.postgres import PostgresServer
from tenuto.embedded.process import choose_port
from tenuto.kernel.metrics.columns import Columns, cut
from tenuto.kernel.migrations import migrate
from tenuto.kernel.service import spare_collector
from tenuto.schemas import subjects
from tenuto.schemas.reports import (
    HEADER_AGENT,
    HEADER_KIND,
    HEADER_SEQUENCE,
    HEADER_SPOOL,
    HEADER_TOKEN,
    MetricPoint,
    MetricsReport,
)
from tenuto.services.tracker.projections.metrics import write_sets

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.gateway_world import World, gateway_world, requested

MANY = 1_000_000
TRIALS, EACH = 200, 1_000
WIDTHS = (1_000, 30_000, 63_000, 130_000, 1_000_000)
PIXELS = 1_000
WARM_UP_POINTS = 10_000
CURVES = "/api/v1/experiments/1/metrics/curves?metrics=loss&points=1000"
AGENT = "bench"


def columns(count: int, seed: int) -> Columns:
    """A noisy curve in single precision, with the times of steps that take about 50 ms."""
    rng = numpy.random.default_rng(seed)
    values = (1 / numpy.sqrt(numpy.arange(1, count + 1)) + rng.normal(0, 0.05, count)).astype(numpy.float32).astype(numpy.float64)
    batches = numpy.arange(count)
    times = 1_700_000_000_000_000 + numpy.cumsum(rng.integers(45_000, 60_000, count))
    return Columns(batches, times, numpy.ones_like(batches), ("loss",), values[None])


async def timed(work: Callable[[], Awaitable[object]], count: int) -> list[float]:
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - begin)
    return sorted(taken)


def told(name: str, taken: list[float], more: str = "", bar: str = "") -> None:
    median, p99 = taken[len(taken) // 2], taken[-1 - len(taken) // 100]
    print(f"{name:60} median {median * 1e3:7.1f} ms  p99 {p99 * 1e3:7.1f} ms  {more}", flush=True)
    figure(f"{name.strip()}, median", median * 1e3, "ms", bar=bar)


async def pictures(world: World, url: str, requests: int, many: int, trials: int) -> None:
    pool = await asyncpg.create_pool(url)
    await write_sets(pool, {(1, 1): cut(columns(many, 0))})
    await write_sets(pool, {(1, 1 + trial): [columns(EACH, trial)] for trial in range(1, trials + 1)})
    plain = await asyncpg.connect(url)
    await plain.execute("CREATE TEMP TABLE plain (b bigint, v float8)")
    whole = columns(many, 0)
    await plain.copy_records_to_table("plain", records=zip(whole.batches.tolist(), whole.values[0].tolist(), strict=True))
    await plain.execute("CREATE INDEX ON plain (b) INCLUDE (v); ANALYZE plain")
    spare_collector()  # as every service does once it is up
    rng = random.Random(1)
    sizes: list[int] = []

    def a_range(width: int) -> tuple[int, int]:
        first = rng.randrange(0, many - width + 1)
        return first, first + width - 1

    async def ask(address: str, encoding: str = "identity") -> None:
        answer = await world.http.get(address, headers={"Accept-Encoding": encoding})
        assert answer.status_code == 200, answer.text
        sizes.append(len(answer.content))

    async def grouped(first: int, last: int) -> None:
        await plain.fetch(
            "SELECT b * 1000 / $3::bigint, min(v), max(v) FROM plain WHERE b BETWEEN $1 AND $2 GROUP BY 1",
            first,
            last,
            last - first + 1,
        )

    async def any_range(width: int | None = None) -> None:
        first, last = a_range(width or int(10 ** rng.uniform(2, math.log10(many))))
        await ask(f"{CURVES}&trials=1&first={first}&last={last}")

    await timed(any_range, 20)
    told(f"one trial of {many:,} points, ranges of 100 to {many:,}", await timed(any_range, requests), bar="at most 50 ms")
    for width in (width for width in WIDTHS if width <= many):
        told(f"  ranges of {width:,}", await timed(lambda width=width: any_range(width), requests // 4))  # type: ignore[misc]
    told("  the whole, by GROUP BY over plain rows", await timed(lambda: grouped(0, many - 1), 5))
    all_of_them = f"{CURVES}&trials=2-{trials + 1}"
    await timed(lambda: ask(all_of_them), 3)
    sizes.clear()
    taken = await timed(lambda: ask(all_of_them), requests // 4)
    told(f"{trials} trials x {EACH} points", taken, f"{statistics.median(sizes) / 1e6:.1f} MB", "at most 150 ms")
    told("  compressed", await timed(lambda: ask(all_of_them, "gzip"), requests // 8), bar="at most 150 ms")
    cursor = (await world.http.get(all_of_them)).json()["cursor"]
    told("  followed, nothing new", await timed(lambda: ask(f"{all_of_them}&cursor={cursor}"), requests // 4))
    stored = await pool.fetchval("SELECT pg_total_relation_size('trial_metric_chunks')")
    print(f"stored: {stored / (many + trials * EACH):.1f} bytes a point (raw pairs of float64: 16)")
    await plain.close()
    await pool.close()


async def run_pictures(requests: int, many: int, trials: int) -> None:
    with tempfile.TemporaryDirectory(prefix="tenuto-metrics-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        server = PostgresServer(directory / "postgres")
        await server.start()
        try:
            await migrate(server.owner_url)
            async with gateway_world(SimpleNamespace(url=server.url), directory) as world:
                await world.submit()
                await world.record(*(requested(number) for number in range(1, trials + 2)))
                await pictures(world, server.url, requests, many, trials)
        finally:
            await server.stop()


class Ours:
    def __init__(self, world: ReportWorld) -> None:
        self._world, self._sequence, self._batches = world, 0, 0

    async def ingest(self, count: int) -> float:
        """Seconds until so many points are committed."""
        bodies = []
        rng = numpy.random.default_rng(self._batches)
        for _ in range(count // 1_000):
            values = rng.random(1_000).tolist()
            points = tuple(
                MetricPoint(batches=self._batches + i, time_us=time.time_ns() // 1_000, metrics={"loss": value})
                for i, value in enumerate(values)
            )
            self._batches += 1_000
            bodies.append(MetricsReport(trial_id="1-1", allocation_id="1-1-1", points=points).to_json())
        subject = subjects.ingress("metrics", AGENT)
        headers = {HEADER_AGENT: AGENT, HEADER_SPOOL: AGENT, HEADER_KIND: "metrics"}
        headers[HEADER_TOKEN] = self._world.tokens.token(AGENT, "1-1-1")
        begin = time.perf_counter()
        for body in bodies:
            self._sequence += 1
            last, numbered = body is bodies[-1], headers | {HEADER_SEQUENCE: str(self._sequence)}
            await (self._world.publish_last if last else self._world.bus.publish)(subject, body, headers=numbered)
        await self._world.until_empty()
        return time.perf_counter() - begin


class Mlflow:
    def __init__(self, http: httpx.AsyncClient, run_id: str) -> None:
        self._http, self._run_id, self._step = http, run_id, 0

    async def ingest(self, count: int) -> float:
        """Seconds until so many points are answered for."""
        bodies = []
        rng = numpy.random.default_rng(self._step)
        for _ in range(count // 1_000):
            now = time.time_ns() // 1_000_000
            metrics = [
                {"key": "loss", "value": value, "timestamp": now, "step": self._step + i}
                for i, value in enumerate(rng.random(1_000).tolist())
            ]
            self._step += 1_000
            bodies.append({"run_id": self._run_id, "metrics": metrics})
        begin = time.perf_counter()
        for body in bodies:
            answer = await self._http.post("/api/2.0/mlflow/runs/log-batch", json=body)
            assert answer.status_code == 200, answer.text
        return time.perf_counter() - begin


@contextlib.asynccontextmanager
async def mlflow(python: str, world: ReportWorld) -> AsyncIterator[Mlflow]:
    owner = await asyncpg.connect(world.postgres.owner_url)
    superuser = world.postgres.owner_url
    with contextlib.suppress(asyncpg.PostgresError):
        await owner.execute("CREATE SCHEMA mlflow")
    await owner.close()
    port = choose_port()
    url = superuser.replace("postgresql://", "postgresql+psycopg2://") + "?options=-csearch_path%3Dmlflow"
    command = [python, "-m", "mlflow", "server", "--backend-store-uri", url, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--uvicorn-opts", "--loop uvloop --log-level warning"]
    command += ["--default-artifact-root", str(world.directory / "artifacts")]
    with (world.directory / "mlflow.log").open("w") as log:
        process = subprocess.Popen(  # noqa: ASYNC220
            command, stdout=log, stderr=log, cwd=world.directory, start_new_session=True
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            for _ in range(600):
                with contextlib.suppress(httpx.HTTPError):
                    if (await http.get("/health")).status_code == 200:
                        break
                assert process.poll() is None, (world.directory / "mlflow.log").read_text()[-2_000:]
                await asyncio.sleep(0.5)
            body = {"experiment_id": "0", "start_time": 1}
            run = (await http.post("/api/2.0/mlflow/runs/create", json=body)).json()["run"]["info"]["run_id"]
            yield Mlflow(http, run)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it has nothing to keep, and takes long to leave
        process.wait(30)


async def run_ingest(python: str | None, rounds: int, ours_points: int, theirs_points: int, warm_up_points: int) -> None:
    async with report_world() as world, contextlib.AsyncExitStack() as stack:
        peer = await stack.enter_async_context(mlflow(python, world)) if python else None
        with world.tracker():
            await world.tracker_is_up()
            ours = Ours(world)
            await ours.ingest(warm_up_points)
            if peer is not None:
                await peer.ingest(2_000)
            rates: list[float] = []
            theirs: list[float] = []
            for _ in range(rounds):
                rates.append(ours_points / await ours.ingest(ours_points))
                line = f"ours {rates[-1]:10,.0f} points/s"
                if peer is not None:
                    theirs.append(theirs_points / await peer.ingest(theirs_points))
                    line += f"   MLflow {theirs[-1]:8,.0f} points/s   ratio {rates[-1] / theirs[-1]:5.1f}"
                print(line, flush=True)
            own = statistics.median(rates)
            print(f"median: ours {own:,.0f} points/s")
            if theirs:
                ratio = statistics.median(a / b for a, b in zip(rates, theirs, strict=True))
                print(f"median: MLflow {statistics.median(theirs):,.0f} points/s, ratio {ratio:.1f}")
                of, bar = statistics.median(theirs), "ratio at least 20"
                figure("ingest", own, "points/s", beside="MLflow's server", of=of, ratio=ratio, bar=bar)
            else:
                figure("ingest", own, "points/s")
            owner = await asyncpg.connect(world.postgres.owner_url)
            stored = await owner.fetchval("SELECT sum(points) FROM trial_metric_chunks")
            assert stored == warm_up_points + rounds * ours_points
            await owner.execute("VACUUM FULL trial_metric_chunks")
            size = await owner.fetchval("SELECT pg_total_relation_size('trial_metric_chunks')")
            print(f"ours: {size / stored:.1f} bytes a point of double precision (raw pairs of float64: 16)")
            if peer is not None:
                await owner.execute("VACUUM FULL mlflow.metrics")
                count = await owner.fetchval("SELECT count(*) FROM mlflow.metrics")
                size = await owner.fetchval("SELECT pg_total_relation_size('mlflow.metrics')")
                print(f"MLflow: {size / count:.1f} bytes a point")
            await owner.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--points", type=int, default=200_000, help="of ours in a round")
    parser.add_argument("--mlflow-points", type=int, default=20_000)
    parser.add_argument("--mlflow", metavar="PYTHON", help="of an environment with mlflow")
    parser.add_argument("--only", choices=["pictures", "ingest"])
    parser.add_argument("--many", type=int, default=MANY, help="points of the one trial")
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"of {EACH:,} points")
    parser.add_argument("--warm-up-points", type=int, default=WARM_UP_POINTS, help="of ours, before the first round")
    options = parse(parser, warm_up_points=1_000, requests=8, rounds=1, points=1_000, mlflow_points=1_000, many=10_000, trials=3)
    if options.only != "ingest":
        asyncio.run(run_pictures(options.requests, options.many, options.trials))
    if options.only != "pictures":
        asyncio.run(run_ingest(options.mlflow, options.rounds, options.points, options.mlflow_points, options.warm_up_points))
