"""The page in a real browser: `python benchmarks/page.py [--trials 1000] [--many 10000] [--live 200] [--only PART ...]`.

Debian's Chromium, a real gateway and PostgreSQL, all on this machine. Three experiments: one of ASHA with many trials and
some ten events of each, whose decisions are the searcher's own; one with `--trials` trials of 1,000 training points and ten
validations; one that runs, with `--live` trials whose points grow ten times a second. An interaction counts from the event
to the end of the frame that shows what it changed, so it is never shorter than a frame; the frames of a page at rest are
counted, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import numpy
from figures import figure, parse

from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.metrics.columns import Columns
from tenuto.kernel.migrations import migrate
from tenuto.kernel.service import spare_collector
from tenuto.schemas.events import EventData
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.search import ExperimentStarted, TrialExtended, TrialRequested
from tenuto.schemas.events.trial import TrialFinished, ValidationReported
from tenuto.services.tracker.projections.metrics import write_sets

sys.path.insert(0, str(Path(__file__).parents[1]))
from page_driver import Driver

from tests.support.gateway_world import SLOTS, AllocationGranted, AllocationReleased, World, gateway_world
from tests.support.search_driver import Search, asha

POINTS, VALIDATIONS, UPDATES_PER_SECOND = 1_000, 10, 10
CONFIG = """
name: {name}
entrypoint: model_def:Trial
hyperparameters:
  lr: {{type: log, minval: -4, maxval: -1}}
  dropout: {{type: double, minval: 0, maxval: 0.5}}
  layers: {{type: int, minval: 1, maxval: 6}}
searcher: {{metric: loss, max_length: {{batches: 1000}}, {searcher}}}
"""
SEARCHERS = {
    "many": "name: asha, max_trials: {many}, max_concurrent_trials: 64, divisor: 4",
    "whole": "name: random, max_trials: {trials}",
    "live": "name: random, max_trials: {live}",
}
AT_ONCE = 2_000
WHY = Reason(rule="test")


def of_search(trials: int, seed: int) -> Iterator[EventData]:
    """Events of an ASHA search, each trial with grants, validations on the way, and an end: ten a trial."""
    rng = random.Random(seed)
    search: Search = asha(trials, 64, max_length={"batches": 1000})
    search.recorder.checked = False
    skill: dict[str, float] = {}
    waiting: list[EventData] = list(search.decided)
    runs = 0
    yield from waiting
    while waiting:
        data = waiting.pop(rng.randrange(min(64, len(waiting))))
        if not isinstance(data, TrialRequested | TrialExtended):
            continue
        trial, target, runs = data.trial_id, data.target_length, runs + 1
        best = skill.setdefault(trial, rng.random())
        run = {"pool": "default", "allocation_id": f"{trial}-{runs}", "trial_id": trial, "experiment_id": 1, "reason": WHY}
        yield AllocationGranted(slots=SLOTS, **run)
        for part in (4, 2, 1):
            length = max(1, target // part)
            metrics = {"loss": best + rng.gauss(1, 0.1) / length**0.5, "accuracy": 1 - best / 2}
            said = ValidationReported(
                trial_id=trial, allocation_id=f"{trial}-{runs}", batches=length, length=length, metrics=metrics
            )
            yield said
        search.say(said)
        yield AllocationReleased(**run)
        yield from search.decided
        waiting += search.decided
        for ended in [one for one in search.decided if one.TYPE == "TrialStopped"]:
            search.say(done := TrialFinished(trial_id=ended.trial_id, batches=target, length=target, checkpoint_id=None))
            yield done
            yield from search.decided
            waiting += search.decided


def plain(experiment: int, trials: int, seed: int) -> Iterator[EventData]:
    rng = random.Random(seed)
    yield ExperimentStarted(experiment_id=experiment, method="random", rule_version=5)
    for number in range(1, trials + 1):
        trial, end = f"{experiment}-{number}", rng.uniform(0.1, 0.9)
        values = {"lr": 10 ** rng.uniform(-4, -1), "dropout": rng.uniform(0, 0.5), "layers": rng.randrange(1, 7)}
        yield TrialRequested(
            experiment_id=experiment, trial_id=trial, trial_number=number, hyperparameters=values, seed=number,
            target_length=POINTS, reason=WHY,
        )  # fmt: skip
        for step in range(1, VALIDATIONS + 1):
            batches = step * POINTS // VALIDATIONS
            yield ValidationReported(
                trial_id=trial, allocation_id=f"{trial}-1", batches=batches, length=batches,
                metrics={"loss": end + rng.gauss(1, 0.2) / step, "accuracy": 1 - end / 2},
            )  # fmt: skip


def columns(first: int, count: int, seed: int) -> Columns:
    rng = numpy.random.default_rng(seed)
    batches = numpy.arange(first, first + count)
    values = 1 / numpy.sqrt(batches + 1) + rng.normal(0, 0.05, count)
    times = 1_700_000_000_000_000 + batches * 50_000
    return Columns(batches, times, numpy.ones_like(batches), ("loss",), values[None])


async def fill(world: World, pool: asyncpg.Pool, sizes: argparse.Namespace) -> int:
    """Returns the number of events of the first experiment."""
    for name, searcher in SEARCHERS.items():
        await world.submit(CONFIG.format(name=name, searcher=searcher.format(**vars(sizes))))
    batch: list[EventData] = []
    counted = 0
    for experiment, events in (
        (1, of_search(sizes.many, 1)), (2, plain(2, sizes.trials, 2)), (3, plain(3, sizes.live, 3))
    ):  # fmt: skip
        for data in events:
            counted += experiment == 1
            batch.append(data)
            if len(batch) == AT_ONCE:
                await world.record(*batch)
                batch.clear()
    await world.record(*batch)
    for experiment, trials in ((2, sizes.trials), (3, sizes.live)):
        for number in range(1, trials + 1):
            await write_sets(pool, {(experiment, number): [columns(0, POINTS, number)]})
    return counted


@contextlib.asynccontextmanager
async def growing(pool: asyncpg.Pool, trials: int, per_second: float) -> AsyncIterator[None]:
    """Every curve of the third experiment gets a point at each update."""

    async def grow() -> None:
        step = POINTS
        while True:
            due = time.monotonic() + 1 / per_second
            await write_sets(pool, {(3, number): [columns(step, 1, step)] for number in range(1, trials + 1)})
            step += 1
            await asyncio.sleep(max(0, due - time.monotonic()))

    task = asyncio.create_task(grow())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def told(name: str, found: str, bar: str) -> None:
    """`found` begins with the number that counts, after the word "median" where there are several, and ends with its unit."""
    print(f"{name:64} {found:>28}   bar {bar}", flush=True)
    value, unit = found.removeprefix("median ").split()[0].rstrip(","), found.split()[-1]
    figure(name, float(value), unit, bar=f"at most {bar}" if bar else "")


def spread(taken: list[float]) -> str:
    ordered = sorted(taken)
    return f"median {ordered[len(ordered) // 2]:.0f}, p95 {ordered[int(0.95 * (len(ordered) - 1))]:.0f} ms"


def look_whole(driver: Driver, trials: int, moves: int) -> None:
    page = driver.page
    seen = driver.open("/experiments/2?tab=curves", {"paint": "h1, h2", "curves": '[aria-label^="Curves of"] canvas'})
    told(f"{trials:,} trials: first meaningful paint", f"{seen['paint']:.0f} ms", "1,500 ms")
    told("validation curves shown", f"{seen['curves']:.0f} ms", "2,500 ms")
    told("JavaScript of the first page, gzip", f"{driver.script_kilobytes():.0f} KB", "350 KB")
    told("a pointer over the validation curves", spread(driver.hover(".u-over", moves)), "50 ms")
    address = "/experiments/2?tab=curves&metric=training%2Floss"
    seen = driver.open(address, {"curves": '[aria-label^="Curves of"] canvas'})
    told("training curves shown, 1,000 points each", f"{seen['curves']:.0f} ms", "2,500 ms")
    told("a pointer over the training curves", spread(driver.hover(".u-over", moves)), "50 ms")
    told("heap", f"{driver.heap_megabytes():.0f} MB", "250 MB")
    driver.open("/experiments/2?tab=hyperparameters", {"lines": 'canvas[aria-label^="Parallel"]'})
    told("brushing parallel coordinates", spread(driver.brush(moves // 3)), "50 ms")
    page.goto("about:blank")


def look_many(driver: Driver, trials: int, events: int) -> None:
    for name, address, selector in (
        ("list", "/experiments/1?tab=trials", 'section[aria-label="Trials"] tbody tr:nth-child(5)'),
        ("parallel coordinates", "/experiments/1?tab=hyperparameters", 'canvas[aria-label^="Parallel"]'),
        ("rungs", "/experiments/1?tab=rungs", '[aria-label^="Rungs of"]'),
    ):
        seen = driver.open(address, {"it": selector})
        told(f"{trials:,} trials: {name} shown", f"{seen['it']:.0f} ms", "3,000 ms")
        if name == "list":
            told("frames while the list scrolls (at rest: " + spread(driver.frames()) + ")", spread(driver.scroll()), "17 ms")
        elif name == "parallel coordinates":
            told("brushing them", spread(driver.brush()), "50 ms")
        else:
            told(f"any moment of {events:,} events", spread(driver.slide(events)), "300 ms")
    told("heap", f"{driver.heap_megabytes():.0f} MB", "")


def look_live(driver: Driver, seconds: float) -> None:
    driver.open("/experiments/3?tab=curves&metric=training%2Floss", {"curves": '[aria-label^="Curves of"] canvas'})
    driver.page.wait_for_timeout(3_000)
    busy = driver.busy_ms(seconds) / (seconds * UPDATES_PER_SECOND)
    told("live curves: main thread of an update", f"{busy:.1f} ms", "20 ms")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1_000)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--only", nargs="*", choices=("whole", "many", "live"), default=("whole", "many", "live"))
    parser.add_argument("--moves", type=int, default=60, help="of the pointer over curves; a brush makes a third")
    sizes = parse(parser, trials=4, many=6, live=1, seconds=0.5, only=["whole"], moves=3)
    with tempfile.TemporaryDirectory() as directory:
        server = PostgresServer(Path(directory) / "postgres")
        await server.start()
        try:
            await migrate(server.owner_url)
            async with gateway_world(SimpleNamespace(url=server.url), Path(directory)) as world:
                pool = await asyncpg.create_pool(server.url)
                began = time.perf_counter()
                events = await fill(world, pool, sizes)
                print(f"filled in {time.perf_counter() - began:.0f} s; {events:,} events of the first experiment", flush=True)
                spare_collector()  # as every service does once it is up
                await world.http.post("/api/v1/users", json={"name": "ada", "admin": True})
                await world.http.put("/api/v1/users/ada/password", json={"password": Driver.GIVEN})
                await look(world, pool, sizes, events)
                await pool.close()
        finally:
            await server.stop()


async def look(world: World, pool: asyncpg.Pool, sizes: argparse.Namespace, events: int) -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread:
        driver = await loop.run_in_executor(thread, Driver.start, f"http://127.0.0.1:{world.service.port}")
        if "whole" in sizes.only:
            await loop.run_in_executor(thread, look_whole, driver, sizes.trials, sizes.moves)
        if "many" in sizes.only:
            await loop.run_in_executor(thread, look_many, driver, sizes.many, events)
        if "live" in sizes.only:
            async with growing(pool, sizes.live, UPDATES_PER_SECOND):
                await loop.run_in_executor(thread, look_live, driver, sizes.seconds)
        await loop.run_in_executor(thread, driver.close)


if __name__ == "__main__":
    asyncio.run(main())
