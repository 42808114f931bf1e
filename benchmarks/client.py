"""The Python client beside what it stands on: a submission beside the bare HTTP call, a million metric points beside the same
rows in JSON and beside PostgreSQL's own COPY of as many. One cluster; medians."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import io
import json
import statistics
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import numpy
import psutil
from embedded_cluster import EmbeddedCluster, directory_for_cluster, up
from figures import figure, parse

from tenuto.client import Client, Target
from tenuto.client.messages import Upload, submission
from tenuto.client.packing import pack
from tenuto.kernel.metrics.columns import Columns, cut
from tenuto.services.tracker.projections.metrics import write_sets

CONFIG = {
    "name": "client",
    "entrypoint": "model_def:Trial",
    "resources": {"pool": "nowhere"},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
}
MODEL_FILES = 20
POINTS_OF_A_TRIAL = 250_000
PAGES_MAX, PAGE_POINTS = 2, 50_000
"""Of points in JSON: what all would take is reckoned from these."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--submissions", type=int, default=30)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parse(parser, submissions=1, points=1_000, repeats=1)
    with directory_for_cluster() as directory:
        model = directory / "model"
        model.mkdir()
        (model / "model_def.py").write_text("class Trial: ...\n")
        for number in range(MODEL_FILES):
            (model / f"part_{number}.py").write_text(f"VALUE = {number}\n" * 200)
        cluster = EmbeddedCluster(directory, model, {})
        with up(cluster, 1):
            target = Target.find(str(cluster.root))
            points(cluster, target, submissions(target, model, options.submissions), options.points, options.repeats)


def timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def submissions(target: Target, model: Path, count: int) -> int:
    """Returns the id of an experiment."""
    client = Client(target)
    archive = io.BytesIO()
    packed = pack(model, archive, 100 << 20)
    archive.seek(0)
    body = submission(json.dumps(CONFIG).encode(), archive, packed.size_bytes, b"", "")
    assert isinstance(body.body, Upload)
    payload, headers = b"".join(body.body.chunks()), body.headers_for(target.token)
    address = urllib.parse.urlsplit(target.url)

    def bare() -> None:
        connection = http.client.HTTPConnection(address.hostname or "", address.port)
        connection.request("POST", body.address, payload, headers)
        assert connection.getresponse().status == 201
        connection.close()

    def whole() -> int:
        return client.create_experiment(CONFIG, model).id

    bare(), whole()
    taken: dict[str, list[float]] = {"bare HTTP call": [], "create_experiment": []}
    for _ in range(count):
        taken["bare HTTP call"].append(timed(bare))
        taken["create_experiment"].append(timed(whole))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    for name, seconds in medians.items():
        print(f"submit, {name}: {seconds * 1e3:.1f} ms")
    ratios = [b / a for a, b in zip(taken["bare HTTP call"], taken["create_experiment"], strict=True)]
    own, peer = medians["create_experiment"], medians["bare HTTP call"]
    print(f"submit, ratio: {own / peer:.2f} (median of pairs {statistics.median(ratios):.2f})")
    figure("submission", own * 1e3, "ms", beside="bare HTTP call", of=peer * 1e3, ratio=statistics.median(ratios))
    return whole()


def points(cluster: EmbeddedCluster, target: Target, number: int, count: int, repeats: int) -> None:
    """Of the experiment with this number, which has none yet."""
    experiment = Client(target).get_experiment(number)
    gateway = psutil.Process(json.loads((cluster.root / "cluster.json").read_text())["processes"]["gateway"]["pid"])
    url = gateway.environ()["TENUTO_DATABASE_URL"]
    asyncio.run(_fill(url, number, count))
    pages = min(PAGES_MAX, -(-count // PAGE_POINTS))

    def frame() -> None:
        assert len(experiment.metrics().to_pandas()) == count

    def as_json() -> None:
        for _ in range(pages):
            Client(target).get(f"/experiments/{number}/metrics", limit=PAGE_POINTS)

    works = {"to_pandas": frame, "JSON": as_json, "COPY": lambda: asyncio.run(_copy(url, count))}
    taken = {name: [timed(work) for _ in range(repeats)] for name, work in works.items()}
    seconds = {name: statistics.median(values) for name, values in taken.items()}
    seconds["JSON"] *= max(1.0, count / (pages * PAGE_POINTS))
    for name, value in seconds.items():
        print(f"{count:,} points, {name}: {value:.2f} s (ratio to COPY {value / seconds['COPY']:.2f})")
    for peer in ("JSON", "COPY"):
        figure(f"{count:,} points, to_pandas", seconds["to_pandas"], "s", beside=peer, of=seconds[peer])


async def _fill(url: str, experiment: int, count: int) -> None:
    pool = await asyncpg.create_pool(url)
    numbers = numpy.random.default_rng(1).random(count)
    for trial, first in enumerate(range(0, count, POINTS_OF_A_TRIAL), start=1):
        values = numbers[first : first + POINTS_OF_A_TRIAL]
        batches = numpy.arange(first, first + len(values))
        whole = Columns(batches, batches, numpy.ones_like(batches), ("loss",), values[None])
        await write_sets(pool, {(experiment, trial): cut(whole)})
    await pool.close()


async def _copy(url: str, count: int) -> None:
    """Rows of the same numbers as bytes, which nobody takes apart."""
    connection = await asyncpg.connect(url)
    query = f"SELECT 1 + b / {POINTS_OF_A_TRIAL}, b, b, b / 7.0::float8 FROM generate_series(1, {count}) b"

    async def forget(data: bytes) -> None: ...

    await connection.copy_from_query(query, output=forget, format="binary")
    await connection.close()


if __name__ == "__main__":
    main()
