"""PostgreSQL goes away and comes back: what was acknowledged stays, callers hear a clear word, watchers go on."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.eventlog import Append, DuplicateEvent, Fenced, LogError, LogUnavailable, NotWritable
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.migrations import migrate
from tenuto.schemas.envelope import Event
from tenuto.schemas.ids import name_id


def event(producer: int, number: int) -> Event:
    return Event(
        name_id("outage", str(producer), str(number)), f"trial/1-{producer}", "TrialProgressed", 1, number, b"{}", "tracker/1"
    )


@pytest.fixture
async def server() -> AsyncIterator[PostgresServer]:
    """A server of the test's own, to be killed."""
    directory = Path(tempfile.mkdtemp(prefix="tenuto-outage-"))
    directory.chmod(0o711)
    server = PostgresServer(directory)
    await server.start()
    await migrate(server.owner_url)
    yield server
    await server.stop()
    shutil.rmtree(directory, ignore_errors=True)


async def test_errors_while_connecting_say_what_to_do(postgres_server: PostgresServer, empty_database: Any) -> None:
    with pytest.raises(LogUnavailable, match="cannot be reached"):
        await PostgresEventLog.connect("postgresql://tenuto_service@127.0.0.1:1/tenuto")
    with pytest.raises(LogError, match="run the migrations"):
        await PostgresEventLog.connect(empty_database.url)
    with pytest.raises(LogError, match='database "nowhere" does not exist'):
        await PostgresEventLog.connect(postgres_server.url_of("nowhere"))
    wrong = postgres_server.url.replace("@", "x@")
    with pytest.raises(LogError, match="password authentication failed") as refused:
        await PostgresEventLog.connect(wrong)
    assert not isinstance(refused.value, LogUnavailable)


async def test_what_cannot_be_stored_is_not_taken_for_an_outage(database: Any) -> None:
    log = await PostgresEventLog.connect(database.url)
    bad: Any
    for bad in (
        Event(name_id("bad"), "trial/\0", "T", 1, 1, b"{}", "a"),
        Event(name_id("bad"), "trial/1", "T", 1, 2**63, b"{}", "a"),
        Event(name_id("bad"), "trial/1", "T", 1, "soon", b"{}", "a"),  # type: ignore[arg-type]
    ):
        with pytest.raises(LogError) as refused:
            await log.append(Append([bad]))
        assert not isinstance(refused.value, LogUnavailable)
    assert await log.head() == 0
    await log.close()


async def test_a_read_only_database_refuses(database: Any) -> None:
    owner = await asyncpg.connect(database.owner_url)
    await owner.execute(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    await owner.close()
    log = await PostgresEventLog.connect(database.url)
    with pytest.raises(NotWritable, match="read-only"):
        await log.append(Append([event(1, 1)]))
    await log.close()


async def test_ended_sessions_cost_one_error_and_watchers_go_on(database: Any) -> None:
    log = await PostgresEventLog.connect(database.url)
    owner = await asyncpg.connect(database.owner_url)
    heads = log.watch()
    assert await anext(heads) == 0
    ended = await owner.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'tenuto_service' AND datname = $1",
        database.name,
    )
    assert ended >= 2
    await append_until_recorded(log, event(1, 1))
    async for head in heads:
        if head == 1:
            break
    await owner.close()
    await log.close()


async def append_until_recorded(log: PostgresEventLog, wanted: Event) -> None:
    """Appends as every caller does after an unknown outcome: the same ids again, a duplicate is done."""
    while True:
        try:
            await log.append(Append([wanted]))
        except DuplicateEvent:
            return
        except LogUnavailable:
            await asyncio.sleep(0.02)
        else:
            return


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_at_random_instants_nothing_acknowledged_is_lost_or_doubled(server: PostgresServer, seed: int) -> None:
    instants = random.Random(seed)
    log = await PostgresEventLog.connect(server.url)
    acknowledged: set[UUID] = set()
    stop = asyncio.Event()

    async def produce(producer: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            wanted = event(producer, number)
            await append_until_recorded(log, wanted)
            acknowledged.add(wanted.id)

    async def consume() -> int:
        """Moves a checkpoint with an event each time; after an unknown outcome it asks where it is."""
        known = await log.checkpoint("consumer")
        while not stop.is_set():
            step = known.position + 1
            try:
                appended = await log.append(Append([event(0, step)], known, step))
                assert appended.checkpoint is not None
                known = appended.checkpoint
            except (LogUnavailable, Fenced):
                await asyncio.sleep(0.02)
                try:
                    known = await log.checkpoint("consumer")
                except LogUnavailable:
                    continue
        return known.position

    tasks = [asyncio.create_task(produce(producer)) for producer in range(1, 4)]
    consumer = asyncio.create_task(consume())
    for _ in range(4):
        grown = len(acknowledged) + instants.randrange(5, 60)
        while len(acknowledged) < grown:  # noqa: ASYNC110 (the instant of the kill is meant to be arbitrary)
            await asyncio.sleep(instants.random() / 100)
        await server.kill()
        await server.start()
    stop.set()
    await asyncio.gather(*tasks)
    steps = await consumer

    recorded: list[Event] = []
    while page := await log.read(len(recorded), 1000):
        recorded += page
    assert [e.position for e in recorded] == list(range(1, len(recorded) + 1))
    assert acknowledged <= {e.id for e in recorded}
    moved = [e.time_us for e in recorded if e.stream == "trial/1-0"]
    assert moved == list(range(1, len(moved) + 1))
    assert (await log.checkpoint("consumer")).position == len(moved) >= steps
    assert (await log.verify()).tampered is None
    await log.close()
