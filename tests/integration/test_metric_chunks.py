"""Training metrics in the database: written twice, by two at once, over each other; what an older version stored; and pictures of
them from a real gateway."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import numpy
import pytest

from tenuto.kernel.metrics.columns import Point, sets_of
from tenuto.kernel.migrations import migrate, migrations
from tenuto.kernel.pools import open_pool
from tenuto.services.tracker.projections import metrics
from tenuto.services.tracker.projections.metrics import write_sets
from tests.support.gateway_world import World, gateway_world, requested
from tests.support.metric_points import store, store_columns, stored

CURVES = "/experiments/1/metrics/curves"


@pytest.fixture
async def pool(database: Any) -> AsyncIterator[asyncpg.Pool]:
    made = await open_pool(database.url, 4, 30)
    yield made
    made.terminate()


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        await made.submit()
        await made.record(requested(1), requested(2))
        yield made


async def write(pool: asyncpg.Pool, points: list[Point]) -> None:
    await write_sets(pool, {(1, 1): sets_of(points)})


async def test_metrics_are_stored_once_however_they_come(
    database: Any, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = [[Point(b, b, 1, {"loss": b}) for b in range(at, at + 20)] for at in range(0, 400, 20)]
    reports += [[Point(b, 1_000 + b, 2, {"loss": -b}) for b in range(at, at + 50)] for at in range(150, 300, 50)]  # resumed
    for report in reports:
        await write(pool, report)
    expected: list[Any] = [(b, 1_000 + b, 2, {"loss": -b}) if 150 <= b < 300 else (b, b, 1, {"loss": b}) for b in range(400)]
    assert await stored(pool) == expected
    numbers = "SELECT array_agg(write_number ORDER BY first_batches) FROM trial_metric_chunks"
    written = await pool.fetchval(numbers)
    for report in reports:
        await write(pool, report)
    assert await stored(pool) == expected
    assert await pool.fetchval(numbers) == written, "what was there already was not written again"

    shares = [[Point(b, b, 2, {"loss": b}) for b in range(400 + at, 1_000, 4)] for at in range(4)]
    await asyncio.gather(*(write(pool, share[at : at + 10]) for share in shares for at in range(0, len(share), 10)))
    expected += [(b, b, 2, {"loss": b}) for b in range(400, 1_000)]
    assert await stored(pool) == expected

    monkeypatch.setattr(metrics, "_BEGIN", metrics._BEGIN.replace("10s", "200ms"))
    stopped = await asyncpg.connect(database.url)  # as a writer that was stopped in the middle, and is ended by the server
    await stopped.transaction().start()
    await stopped.execute(metrics._BEGIN)
    await write(pool, [Point(1_000, 1, 2, {"loss": 1.0})])
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await stopped.execute("SELECT 1")
    stopped.terminate()
    assert await stored(pool) == [*expected, (1_000, 1, 2, {"loss": 1.0})]


async def test_what_an_older_version_stored_is_read_on(empty_database: Any) -> None:
    wanted = migrations()
    [new] = [item for item in wanted if item.name == "tracker/0002_metric_chunks"]
    await migrate(empty_database.owner_url, wanted[: wanted.index(new)])
    connection = await asyncpg.connect(empty_database.owner_url)
    await connection.execute(
        """INSERT INTO trial_metrics SELECT 1, 1 + b % 2, b, '1-1-' || 1 + b / 1000, 7 * b,
               CASE WHEN b = 500 THEN '{"loss": "NaN", "late": "-Infinity"}' WHEN b = 501 THEN '{}'
               ELSE jsonb_build_object('loss', 1.0::float8 / (1 + b), 'é', b) END FROM generate_series(0, 2999) b"""
    )
    await connection.close()
    await migrate(empty_database.owner_url, wanted)
    pool = await open_pool(empty_database.url, 1, 30)
    try:
        for trial in (1, 2):
            points = {batches: (time, run, found) for batches, time, run, found in await stored(pool, trial)}
            assert list(points) == list(range(trial - 1, 3_000, 2))
            for batches, (time, run, found) in points.items():
                special = {500: {"loss": math.nan, "late": -math.inf}, 501: {}}
                expected = special.get(batches, {"loss": 1.0 / (1 + batches), "é": float(batches)})
                assert (time, run) == (7 * batches, 1 + batches // 1000)
                assert repr(sorted(found.items())) == repr(sorted(expected.items()))
        assert await pool.fetchval("SELECT count(*) FROM trial_metric_chunks") == 4
        await write(pool, [Point(10, 10**9, 9, {"loss": 5.0}), Point(3_000, 1, 9, {"loss": 6.0})])
        points = {batches: found for batches, _, _, found in await stored(pool)}
        assert (points[10], points[12], points[3_000], len(points)) == (
            {"loss": 5.0}, {"loss": 1.0 / 13, "é": 12.0}, {"loss": 6.0}, 1_501,
        )  # fmt: skip
    finally:
        pool.terminate()


async def test_a_picture_has_the_extremes_of_any_range(world: World) -> None:
    rng = numpy.random.default_rng(3)
    values = rng.normal(size=30_000).cumsum()
    values[[777, 20_001]] = 1e6, -1e6
    await store_columns(world.log.pool, 1, {"loss": values, "lr, log": numpy.arange(30_000.0)}, first=0)
    await store(world.log.pool, 2, {100: {"loss": 1.0}, 200: {"loss": math.nan}, 300: {"other": math.inf}})
    picture = await world.get(f"{CURVES}?metrics=loss&points=100&times=true")
    assert (picture["width"], picture["first"], picture["last"], picture["whole"]) == (256, 0, 118 * 256 - 1, True)
    assert picture["metrics"] == ["loss", "lr, log", "other"]
    first, second = picture["curves"]
    assert (first["trial_id"], first["metric"], first["since"], len(first["values"])) == ("1-1", "loss", 0, 236)
    for column in range(0, 30_000, 256):
        there = [v for b, v in zip(first["batches"], first["values"], strict=True) if column <= b < column + 256]
        assert (min(there), max(there)) == (values[column : column + 256].min(), values[column : column + 256].max())
    assert all(values[b] == v for b, v in zip(first["batches"], first["values"], strict=True))
    assert first["time_us"] == [10 * batches for batches in first["batches"]]
    assert (second["batches"], second["values"]) == ([100], [1.0]), "NaN only where there is nothing else"
    near = await world.get(f'{CURVES}?trials=1-2&metrics="lr, log",loss&points=50&first=190&last=210')
    assert (near["width"], near["first"], near["last"]) == (1, 190, 210)
    assert [(c["trial_id"], c["metric"], c["batches"], c["time_us"]) for c in near["curves"]] == [
        ("1-1", "lr, log", list(range(190, 211)), None),
        ("1-1", "loss", list(range(190, 211)), None),
        ("1-2", "loss", [200], None),
    ]
    assert near["curves"][2]["values"] == ["NaN"]
    assert (await world.get(f"{CURVES}?trials=9"))["curves"] == []
    assert (await world.get(CURVES))["metrics"] == ["loss", "lr, log", "other"]


async def test_a_picture_is_followed_by_its_cursor(world: World) -> None:
    """What a page has after each answer is what a whole answer gives, also where history was written over."""
    await store_columns(world.log.pool, 1, {"loss": numpy.arange(5_000.0)}, first=0)
    await store_columns(world.log.pool, 2, {"loss": numpy.arange(100.0)}, first=0)
    query, cursor, have = f"{CURVES}?metrics=loss&points=50", "", dict[str, dict[int, float]]()

    async def follow() -> tuple[bool, int]:
        nonlocal cursor
        answer = await world.get(query + (cursor and f"&cursor={cursor}"))
        cursor = answer["cursor"]
        if answer["whole"]:
            have.clear()
        for curve in answer["curves"]:
            kept = {b: v for b, v in have.get(curve["trial_id"], {}).items() if b < curve["since"]}
            have[curve["trial_id"]] = kept | dict(zip(curve["batches"], curve["values"], strict=True))
        whole = await world.get(query)
        assert have == {c["trial_id"]: dict(zip(c["batches"], c["values"], strict=True)) for c in whole["curves"]}
        return answer["whole"], sum(len(curve["values"]) for curve in answer["curves"])

    assert await follow() == (True, 162)
    assert await follow() == (False, 0)
    await store(world.log.pool, 2, {batches: {"loss": -1.0} for batches in range(100, 110)})
    assert await follow() == (False, 2), "only the columns from the changed chunk on"
    await store_columns(world.log.pool, 1, {"loss": numpy.full(50, -5.0)}, first=4_975)
    whole, count = await follow()
    assert (whole, count <= 82) == (False, True)
    await write_sets(world.log.pool, {(1, 1): sets_of([Point(10, 10**9, 2, {"loss": 1e9})])})
    assert (await follow())[0] is False
    await store(world.log.pool, 1, {batches: {"loss": 0.0} for batches in range(6_000, 12_000, 100)})
    assert (await follow())[0] is True, "the range grew, so columns are wider"


async def test_pictures_stay_within_bounds(world: World) -> None:
    says = {
        "metrics=a&points=0": "points",
        "metrics=a&points=4001": "points",
        "metrics=%22a": "metrics is no list of names with commas between: unexpected end of data.",
        "metrics=" + ",".join(f"m{i}" for i in range(21)): "metrics names 21 metrics; the most is 20.",
        "trials=1-2000000": "trials names more than 1,000 trials.",
        "trials=0": "trials",
        "trials=1;drop": "trials",
        "first=5&last=4": "last is 4, before first, 5.",
        "metrics=a&trials=1-1000&points=501": "1,000 curves of 501 points are more than the 500,000 of one answer: ask for fewer",
        "cursor=x": "cursor is not one of such curves; take it from the answer before.",
        "cursor=W-1": "cursor",
    }  # fmt: skip
    for query, message in says.items():
        status, code, said = await world.error("GET", f"{CURVES}?{query}")
        assert (status, code) == (400, "invalid"), query
        assert said.startswith(message), said
    assert (await world.error("GET", "/experiments/7/metrics/curves"))[:2] == (404, "not_found")
    empty = await world.get(f"{CURVES}?metrics=loss")
    assert (empty["curves"], empty["metrics"], empty["whole"]) == ([], [], True)
    ends = [Point(0, 0, 1, {"loss": 1.0}), Point(2**62, 0, 1, {"loss": 2.0})]
    await write_sets(world.log.pool, {(1, 1): sets_of(ends)})
    far = await world.get(f"{CURVES}?metrics=loss&points=1")
    assert far["curves"][0]["values"] == [1.0, 2.0]
