"""Effects on real NATS and PostgreSQL: at least once, bounded retries, parked at the end, none forgotten by a lost bus."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import nats.errors
import pytest
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import bus as bus_module
from tenuto.kernel import effects as effects_module
from tenuto.kernel import parked as parked_module
from tenuto.kernel import relay as relay_module
from tenuto.kernel.effects import Effects, Nack
from tenuto.kernel.eventlog import Append, LogUnavailable
from tenuto.kernel.relay import Relay
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EVENT_MODELS
from tests.conftest import Database
from tests.support.memory_log import MemoryEventLog
from tests.support.tally_core import priority_changed, weight_changed
from tests.support.waiting import SECONDS_MAX, until_async, until_on_loop

TYPE = "ExperimentPriorityChanged"


class World:
    """A log with its relay, and effects that can be started and stopped."""

    def __init__(self, log: MemoryEventLog, settings: Settings, pool: Any) -> None:
        self.log, self.settings, self.pool = log, settings, pool
        self.done: Counter[int] = Counter()
        self._moved = asyncio.Event()

    async def handle(self, event: Event) -> None:
        self.count(event)

    def count(self, event: Event) -> None:
        self.done[event.position] += 1
        self._moved.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                self._moved.clear()
                await self._moved.wait()

    @contextlib.asynccontextmanager
    async def effects(self, handler: Callable[[Event], Awaitable[None]]) -> AsyncIterator[Effects]:
        effects = Effects("test", {TYPE: handler}, self.settings, self.log, self.pool)
        task = asyncio.create_task(effects.run())
        try:
            yield effects
        finally:
            await stop_task(task)

    async def add(self, count: int) -> int:
        head = await self.log.head()
        events = [(priority_changed if n % 2 else weight_changed)(UUID(int=head + n), 1, 5) for n in range(1, count + 1)]
        return (await self.log.append(Append(events))).events[-1].position

    async def wanted(self) -> set[int]:
        return {event.position for event in await self.log.read(0, 10_000, types=[TYPE])}


class Unreachable:
    """Pool of a database that does not answer the question if it is there."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    async def fetchval(self, query: str, *arguments: Any, **options: Any) -> Any:
        if query == "SELECT 1":
            raise ConnectionRefusedError
        return await self._pool.fetchval(query, *arguments, **options)


@pytest.fixture
async def world(nats: NatsServer, database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(effects_module, "RETRIES", replace(effects_module.RETRIES, first_seconds=0.01))
    settings = Settings(nats_url=nats.url)
    log = MemoryEventLog()
    pool = await asyncpg.create_pool(database.url, min_size=1, max_size=3)
    client = await bus_module.connect(settings, "relay")
    relay = asyncio.create_task(Relay(log, client, settings).run())
    yield World(log, settings, pool)
    await stop_task(relay)
    await bus_module.close(client)
    await pool.close()


async def test_every_event_of_the_type_is_handled_once_at_rest(world: World) -> None:
    await world.add(20)
    async with world.effects(world.handle):
        await world.until(lambda: len(world.done) == 10)
        await world.add(20)
        await world.until(lambda: len(world.done) == 20)
    assert set(world.done) == await world.wanted()
    assert set(world.done.values()) == {1}


async def last_published(js: JetStreamContext) -> int:
    try:
        return int((await js.stream_info(subjects.LOG_STREAM)).state.last_seq)
    except NotFoundError:  # the relay has just started
        return 0


async def test_only_the_type_is_sent_also_to_a_consumer_of_an_earlier_version(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier the subjects had no type, and the consumer was sent all events of the kind: none of either is left out."""
    kind = EVENT_MODELS[TYPE].STREAM
    client = await bus_module.connect(world.settings, "test")
    js = client.jetstream()
    with monkeypatch.context() as earlier:
        earlier.setattr(subjects, "log_subject", lambda stream, _: f"tenuto.log.{stream.replace('/', '.')}")
        position = await world.add(10)
        await until_async(lambda: last_published(js), lambda published: published >= position)
    durable = ConsumerConfig(
        durable_name="effects-test", filter_subjects=[f"tenuto.log.{kind}.>"], ack_policy=AckPolicy.EXPLICIT, max_ack_pending=64
    )
    await js.add_consumer(subjects.LOG_STREAM, durable)
    async with world.effects(world.handle):
        await world.until(lambda: len(world.done) == 5)
        await world.add(20)
        await world.until(lambda: len(world.done) == 15)
        info = await js.consumer_info(subjects.LOG_STREAM, "effects-test")
    await bus_module.close(client)
    assert set(world.done) == await world.wanted()
    assert info.delivered is not None
    assert info.delivered.consumer_seq == 10 + 10  # all that has no type, and half of what has


async def test_a_failing_effect_is_tried_again_and_then_parked(world: World) -> None:
    attempts: Counter[int] = Counter()

    async def handler(event: Event) -> None:
        attempts[event.position] += 1
        if event.position == 1:
            raise OSError("the disk is gone")
        if event.position == 3 and attempts[3] < 3:
            raise Nack("not yet", 0.01)
        world.count(event)

    await world.add(5)
    async with world.effects(handler):
        await world.until(lambda: len(world.done) == 2)
        rows = await until_async(lambda: world.pool.fetch("SELECT * FROM parked"))
    assert set(world.done) == {3, 5}
    assert attempts == {1: effects_module.RETRIES.attempts_max, 3: 3, 5: 1}
    [row] = rows
    assert (row["consumer"], row["kind"], row["reason"]) == ("effects-test", TYPE, "OSError: the disk is gone")


async def test_a_parked_effect_is_tried_again_when_it_is_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked_module, "RETRY_POLL_SECONDS", 0.05)
    disk = asyncio.Event()
    outages = iter([LogUnavailable("the log is away"), nats.errors.NoServersError()])

    async def handler(event: Event) -> None:
        if not disk.is_set():
            raise OSError("the disk is gone")
        if (outage := next(outages, None)) is not None:
            raise outage
        world.count(event)

    async def row() -> asyncpg.Record | None:
        return await world.pool.fetchrow("SELECT * FROM parked")

    async def ask() -> None:
        await world.pool.execute("UPDATE parked SET retry_asked_at = now()")

    await world.add(1)
    async with world.effects(handler), asyncio.timeout(SECONDS_MAX):
        while (parked := await row()) is None:  # noqa: ASYNC110 - polls the database
            await asyncio.sleep(0.02)
        await ask()
        while parked["retries"] == 0:
            parked = await row()
            assert parked is not None
            await asyncio.sleep(0.02)
        assert parked["retry_asked_at"] is None
        disk.set()
        await ask()  # once: the bus and the log are away at first, and the request stays open
        await world.until(lambda: world.done[1] == 1)
        while await row() is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_what_a_killed_process_had_in_hand_comes_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects_module, "ACK_SECONDS", 0.5)
    entered = asyncio.Event()

    async def hang(event: Event) -> None:
        entered.set()
        await asyncio.Event().wait()

    await world.add(6)
    async with world.effects(hang):
        await entered.wait()
    async with world.effects(world.handle):
        await world.until(lambda: len(world.done) == 3)
    assert set(world.done) == await world.wanted()


async def test_a_long_effect_keeps_its_event(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the acknowledgement time; without the in-progress signals it would be delivered again."""
    # On a crowded machine a signal, of which there are three in that time, may be late by a second.
    monkeypatch.setattr(effects_module, "ACK_SECONDS", 3.0)

    async def slow(event: Event) -> None:
        await asyncio.sleep(6.5)
        world.count(event)

    await world.add(1)
    async with world.effects(slow) as effects:
        await world.until(lambda: bool(world.done))
        await until_async(effects._consumer.info, lambda info: info is not None and not info.num_ack_pending)
    assert world.done == {1: 1}


async def test_a_bus_that_lost_its_disk_forgets_no_effect(
    world: World, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "REPUBLISH_EVENTS_MAX", 10)
    blocked: set[int] = {7}

    async def handler(event: Event) -> None:
        if event.position in blocked:
            raise Nack("not yet", 3600)
        world.count(event)

    await world.add(8)
    async with world.effects(handler) as effects:
        await world.until(lambda: len(world.done) == 3)

        async def noted() -> object:
            await effects.note_floor()
            return await world.pool.fetchval("SELECT position FROM effect_positions")

        await until_async(noted)
        await nats.kill()
        await nats.wipe()
        await world.add(40)  # far more than the new stream begins with
        blocked.clear()
        await nats.start()
        wanted = await world.wanted()
        await world.until(lambda: set(world.done) == wanted)
    assert world.done[1] == 1, "what was noted as handled is not handled again"


async def test_an_outage_of_the_database_or_the_bus_is_no_attempt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """More failures than an effect has attempts; each is the trouble of a neighbour, and nothing is parked."""
    attempts_max = effects_module.RETRIES.attempts_max
    assert attempts_max is not None
    monkeypatch.setattr(effects_module, "RETRIES", replace(effects_module.RETRIES, max_seconds=0.02))
    outages = [
        *[LogUnavailable("the log is away")] * attempts_max,
        *[nats.errors.TimeoutError()] * attempts_max,
        *[ConnectionRefusedError("the database is away")] * attempts_max,
    ]
    left = iter(outages)

    async def handler(event: Event) -> None:
        if (outage := next(left, None)) is not None:
            raise outage
        world.count(event)

    await world.add(1)
    world.pool = Unreachable(world.pool)
    async with world.effects(handler):
        await world.until(lambda: world.done[1] == 1)
    assert await world.pool.fetchval("SELECT count(*) FROM parked") == 0


@pytest.mark.timeout(method="thread")
async def test_stopping_while_the_bus_is_away_leaves_nothing_running(world: World, nats: NatsServer) -> None:
    """A pull that goes on asking a closed connection never lets the event loop have a turn: nothing could end this test."""
    await world.add(2)
    before = asyncio.all_tasks()
    async with world.effects(world.handle) as effects:
        await world.until(lambda: len(world.done) == 1)
        connection = effects._consumer.broker._connection
        assert connection is not None
        await nats.kill()
        await until_on_loop(lambda: not connection.is_connected)  # the client tells nobody
    await asyncio.sleep(0)
    assert connection.is_closed
    left = {task for task in asyncio.all_tasks() - before if "_consume_pull" in repr(task)}
    await asyncio.wait_for(asyncio.gather(*left, return_exceptions=True), SECONDS_MAX)
