"""The views of trials that validate often: folded together as one by one, in a few statements."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenuto.schemas.envelope import Event
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.metrics import usable, usable_in_sql
from tenuto.services.gateway.projections import TABLES, apply
from tests.support.gateway_world import CONFIG, World, gateway_world, requested, saved, validated

STATEMENTS_MAX = 10
METRICS = (0.1, 0.5, 0.5, 0.9, -2.0, float("nan"), float("inf"), float("-inf"), None)


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        yield made


async def tables(world: World) -> dict[str, list[Any]]:
    return {name: await world.log.pool.fetch(f"SELECT t::text FROM {name} t ORDER BY 1") for name in TABLES}


async def fold(world: World, events: list[Event], together: int) -> dict[str, list[Any]]:
    """The tables folded anew, so many events at a time."""
    async with world.log.pool.acquire() as connection:
        await connection.execute(f"TRUNCATE {', '.join(TABLES)}")
        for at in range(0, len(events), together):
            await apply(connection, events[at : at + together])
    return await tables(world)


def drawn(random: random.Random, trial: str) -> ValidationReported:
    metric, batches = random.choice(METRICS), random.randrange(1, 80)
    metrics = {"other": 1.0} if metric is None else {"accuracy": metric}
    return ValidationReported(trial_id=trial, allocation_id=f"{trial}-1", batches=batches, length=batches, metrics=metrics)


@pytest.mark.parametrize("seed", range(2))
async def test_validations_folded_together_make_the_rows_that_they_make_one_by_one(world: World, seed: int) -> None:
    random_ = random.Random(seed)
    await world.submit()
    await world.submit(CONFIG.replace("smaller_is_better: false", "smaller_is_better: true"))
    second = requested(1).model_copy(update={"experiment_id": 2, "trial_id": "2-1"})
    made: list[Any] = [requested(1), requested(2), second, *map(saved, range(3, 70, 6))]
    made += [drawn(random_, random_.choice(("1-1", "1-2", "2-1", "9-9"))) for _ in range(150)]
    made.insert(100, saved(70))
    await world.record(*made)
    events = await world.log.read(0, 1000)
    one_by_one = await fold(world, events, 1)
    assert await world.log.pool.fetchval("SELECT count(*) FROM trial_checkpoints WHERE metric IS NOT NULL") > 0
    for together in (7, len(events)):
        assert await fold(world, events, together) == one_by_one
    for trial, better in (("1-1", max), ("1-2", max), ("2-1", min)):
        first: dict[int, float | None] = {}
        for item in made:
            if isinstance(item, ValidationReported) and item.trial_id == trial:
                first.setdefault(item.batches, item.metrics.get("accuracy"))
        known = {batches: value for batches, value in first.items() if value is not None and math.isfinite(value)}
        best = better(known.values())
        row = await world.log.pool.fetchrow("SELECT * FROM trials WHERE trial_id = $1", trial)
        assert (row["best_metric"], known[row["best_batches"]], row["batches"]) == (best, best, max(first))
        assert row["best_batches"] == next(batches for batches, value in known.items() if value == best)


async def test_hundreds_of_validations_take_a_few_statements(world: World) -> None:
    await world.submit()
    await world.record(requested(1), *(validated(batches, accuracy=1.0 / batches) for batches in range(1, 401)))
    events = [event for event in await world.log.read(0, 1000) if event.type == "ValidationReported"]
    async with world.log.pool.acquire() as connection:
        found: list[asyncpg.connection.LoggedQuery] = []
        with connection.query_logger(found.append):
            await connection.execute("TRUNCATE trial_validations")
            await apply(connection, events)
    assert await world.log.pool.fetchval("SELECT count(*) FROM trial_validations") == len(events) == 400
    assert len(found) <= STATEMENTS_MAX


async def test_sql_and_python_call_the_same_values_usable_and_no_other_makes_a_checkpoint_the_best(world: World) -> None:
    values = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, sys.float_info.max, -sys.float_info.max]
    for value in values:
        found = await world.log.pool.fetchval(f"SELECT {usable_in_sql('$1::float8')}", value)
        assert found is usable(value), value
    await world.submit()
    made: list[Any] = [requested(1)]
    for batches, accuracy in ((1, math.inf), (2, 0.5), (3, 0.75), (4, math.nan), (5, -math.inf), (6, math.inf)):
        made += [saved(batches), validated(batches, accuracy=accuracy)]
    await world.record(*made)
    async with world.log.pool.acquire() as connection:
        await connection.execute(f"TRUNCATE {', '.join(TABLES)}")
        await apply(connection, await world.log.read(0, 1000))
    row = await world.log.pool.fetchrow("SELECT best_metric, best_batches FROM trials WHERE trial_id = '1-1'")
    assert tuple(row) == (0.75, 3)
    experiment = await world.get("/experiments/1")
    assert (experiment["best_metric"], experiment["best_checkpoint_id"]) == (0.75, saved(3).checkpoint_id)
