"""Read models on a real PostgreSQL: each event once, cursor and rows in one transaction, poison parked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tenuto.kernel.eventlog import Append
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.projection import Projector
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event, decode_event
from tests.conftest import Database
from tests.support.memory_log import MemoryEventLog
from tests.support.tally_core import priority_changed, weight_changed
from tests.support.waiting import ended, until_async


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[asyncpg.Pool]:
    pool = await asyncpg.create_pool(database.url, min_size=1, max_size=4)
    owner = await asyncpg.connect(database.owner_url)
    await owner.execute("CREATE TABLE seen (position bigint, priority int CHECK (priority <> 13))")
    await owner.execute("GRANT ALL ON seen TO tenuto_service")
    await owner.close()
    yield pool
    await pool.close()


async def apply(connection: Any, events: Sequence[Event]) -> None:
    for event in events:
        await connection.execute("INSERT INTO seen VALUES ($1, $2)", event.position, event.data.priority)  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def running(projector: Projector) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(projector.run())
    try:
        yield task
    finally:
        if task.done():
            task.result()
        await stop_task(task)


async def add(log: MemoryEventLog, *priorities: int) -> int:
    head = await log.head()
    events = [priority_changed(UUID(int=head + n), 1, priority) for n, priority in enumerate(priorities, start=1)]
    return (await log.append(Append(events))).events[-1].position


async def seen(pool: asyncpg.Pool | asyncpg.Connection) -> list[tuple[int, int]]:
    return [tuple(row) for row in await pool.fetch("SELECT * FROM seen ORDER BY position")]


async def cursor(pool: asyncpg.Pool) -> int:
    return int(await pool.fetchval("SELECT position FROM projection_cursors WHERE projection = 'view'"))


async def test_each_event_is_folded_once_over_restarts(pool: asyncpg.Pool) -> None:
    log = MemoryEventLog()
    expected = []
    for priority in range(20, 26):
        last = await add(log, priority, priority + 10)
        expected += [(last - 1, priority), (last, priority + 10)]
        projector = Projector("view", apply, pool, LogFeed(log))
        async with running(projector):
            await projector.wait_position(last)
    assert await seen(pool) == expected
    assert await cursor(pool) == last


async def test_poison_is_parked_and_the_others_go_on(pool: asyncpg.Pool) -> None:
    log = MemoryEventLog()
    last = await add(log, 1, 13, 2, 3)
    projector = Projector("view", apply, pool, LogFeed(log))
    async with running(projector):
        await projector.wait_position(last)
    assert await seen(pool) == [(1, 1), (3, 2), (4, 3)]
    [row] = await pool.fetch("SELECT * FROM parked")
    assert (row["consumer"], row["kind"]) == ("view", "ExperimentPriorityChanged")
    assert decode_event(row["body"]) == (await log.read(1, 1))[0]
    assert "check constraint" in row["reason"]


async def test_events_that_do_not_matter_pass_by(pool: asyncpg.Pool) -> None:
    log = MemoryEventLog()
    await add(log, 1)
    await log.append(Append([weight_changed(UUID(int=10**6 + n), 1, 1.0) for n in range(1500)]))
    last = await add(log, 2)
    projector = Projector("view", apply, pool, LogFeed(log), types=["ExperimentPriorityChanged"])
    async with running(projector):
        await projector.wait_position(last)
    assert await seen(pool) == [(1, 1), (last, 2)]
    assert await cursor(pool) == last


async def test_two_instances_fold_each_event_once(pool: asyncpg.Pool) -> None:
    log = MemoryEventLog()
    one, two = (Projector("view", apply, pool, LogFeed(log)) for _ in range(2))
    async with running(one) as first, running(two) as second:
        for priority in range(20, 60):
            last = await add(log, priority)
            await asyncio.sleep(0)
        await one.wait_position(last)
        await two.wait_position(last)
        assert not first.done()
        assert not second.done()
    assert [position for position, _ in await seen(pool)] == list(range(1, last + 1))


async def test_lost_connections_are_survived(pool: asyncpg.Pool, database: Database) -> None:
    log = MemoryEventLog()
    projector = Projector("view", apply, pool, LogFeed(log))
    owner = await asyncpg.connect(database.owner_url)
    async with running(projector):
        for priority in range(20, 30):
            last = await add(log, *[priority] * 20)
            await owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tenuto_service' AND datname = $1",
                database.name,
            )
            await projector.wait_position(last)
    # The owner's connection was not ended; the pool may still hold one that was, which the projector meets as it may meet any.
    assert [position for position, _ in await seen(owner)] == list(range(1, last + 1))
    assert await owner.fetchval("SELECT count(*) FROM parked") == 0
    await owner.close()


async def test_an_emptied_view_is_rebuilt_to_the_same_rows(pool: asyncpg.Pool) -> None:
    log = MemoryEventLog()
    last = await add(log, 1, 13, 2)
    projector = Projector("view", apply, pool, LogFeed(log))
    async with running(projector):
        await projector.wait_position(last)
    before = await seen(pool)
    await projector.rebuild(["seen"])
    assert await seen(pool) == []
    again = Projector("view", apply, pool, LogFeed(log))
    async with running(again):
        await again.wait_position(last)
    assert await seen(pool) == before
    assert await pool.fetchval("SELECT count(*) FROM parked") == 1


async def test_a_view_is_rebuilt_while_it_is_folded(pool: asyncpg.Pool) -> None:
    """Also on an idle log, where no next event tells the projector that its cursor was set back."""
    log = MemoryEventLog()
    last = await add(log, 1, 13, 2)
    projector = Projector("view", apply, pool, LogFeed(log))
    async with running(projector) as task:
        await projector.wait_position(last)
        before = await seen(pool)
        await pool.execute("DELETE FROM seen")
        await projector.rebuild(["seen"])
        await until_async(lambda: seen(pool), lambda found: found == before, gone=ended(task))
        adding = [await add(log, priority) for priority in range(20, 40)]
        await projector.rebuild(["seen"])
        last = await add(log, 50)
        await until_async(lambda: cursor(pool), lambda position: position == last, gone=ended(task))
        assert not task.done()
    assert [position for position, _ in await seen(pool)] == [1, 3, *adding, last]
    assert await pool.fetchval("SELECT count(*) FROM parked") == 1
