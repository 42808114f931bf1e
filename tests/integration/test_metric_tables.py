"""Metrics by columns: all of them, exactly, in pages, from a real gateway on a real database."""

from __future__ import annotations

import io
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from tenuto.services.gateway.trials.queries import metric_tables
from tests.support.gateway_world import World, gateway_world, requested, validated
from tests.support.metric_points import store

TABLE = "/api/v1/experiments/1/metrics/table"


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        await made.submit()
        await made.record(requested(1), requested(2))
        yield made


async def points(world: World, trial: int, first: int, last: int, metrics: Callable[[int], dict[str, float]]) -> None:
    await store(world.log.pool, trial, {batches: metrics(batches) for batches in range(first, last + 1)})


async def page(world: World, query: str = "") -> tuple[Any, bool]:
    answer = await world.http.get(TABLE + query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/x-npy"
    return numpy.load(io.BytesIO(answer.content)), "Tenuto-More" in answer.headers


async def test_each_point_is_there_with_its_exact_numbers(world: World) -> None:
    await points(world, 1, 1, 150, lambda b: {"loss": 1.0 / b, "batches": b})
    await points(world, 1, 151, 152, lambda b: {"loss": math.nan, "late": -math.inf})
    await points(world, 2, 1, 1, lambda b: {"naïve/é": 1e-300})
    table, more = await page(world)
    assert not more
    fixed = ("trial", "batches", "time_us")
    assert table.dtype.names == (*fixed, "metrics.batches", "metrics.late", "metrics.loss", "metrics.naïve/é")
    assert table["batches"].tolist() == [*range(1, 153), 1]
    assert table["trial"].tolist() == [1] * 152 + [2]
    assert table["time_us"].tolist() == [*range(10, 1521, 10), 10]
    assert table["metrics.loss"][:150].tolist() == pytest.approx([1.0 / b for b in range(1, 151)], rel=1e-15)
    assert numpy.isnan(table["metrics.loss"][150:]).all()
    assert table["metrics.late"][151] == -math.inf
    assert table["metrics.naïve/é"][152] == 1e-300

    only, _ = await page(world, "?metric=loss&trial=1")
    assert only.dtype.names == (*fixed, "metrics.loss")
    assert len(only) == 152
    other, _ = await page(world, "?trial=2")
    assert other.dtype.names == (*fixed, "metrics.naïve/é")


async def test_pages_go_on_behind_the_last_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await points(world, 1, 1, 7, lambda b: {"loss": 1})
    await points(world, 2, 1, 6, lambda b: {"loss": 1})
    monkeypatch.setattr(metric_tables, "VALUES_MAX", 25)  # five rows of one metric
    seen: list[tuple[int, int]] = []
    more = True
    while more:
        last = seen[-1] if seen else (0, -1)
        table, more = await page(world, f"?after_trial={last[0]}&after_batches={last[1]}")
        assert len(table) <= 5
        seen += zip(table["trial"].tolist(), table["batches"].tolist(), strict=True)
    assert seen == [(1, b) for b in range(1, 8)] + [(2, b) for b in range(1, 7)]
    assert len((await page(world, "?limit=2"))[0]) == 2


async def test_validations_have_their_length(world: World) -> None:
    await world.record(validated(10, accuracy=0.5), validated(20, accuracy=math.nan, other=2.0))
    table, _ = await page(world, "?kind=validation")
    assert table.dtype.names == ("trial", "batches", "time_us", "length", "metrics.accuracy", "metrics.other")
    assert table["length"].tolist() == [10, 20]
    assert table["metrics.accuracy"][0] == 0.5
    assert numpy.isnan([table["metrics.accuracy"][1], table["metrics.other"][0]]).all()


async def test_what_is_not_there_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table, more = await page(world)
    assert (len(table), more) == (0, False)
    assert (await world.error("GET", "/experiments/7/metrics/table"))[:2] == (404, "not_found")
    assert (await world.error("GET", "/experiments/1/metrics/table?kind=other"))[:2] == (400, "invalid")
    await points(world, 1, 1, 4, lambda b: {f"m{b}": 1})
    monkeypatch.setattr(metric_tables, "METRICS_MAX", 3)
    status, code, message = await world.error("GET", "/experiments/1/metrics/table")
    assert (status, code) == (400, "invalid")
    assert message == "There are more than 3 metrics: name the one that you want with ?metric=NAME."
    assert len((await page(world, "?metric=m2"))[0]) == 4
