"""Log -> relay -> JetStream -> feed, on a real NATS server that is killed, wiped and rolled back."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from nats.js.errors import NotFoundError

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import bus as bus_module
from tenuto.kernel import relay as relay_module
from tenuto.kernel import stream_feed
from tenuto.kernel.eventlog import Append
from tenuto.kernel.feed import StreamFeed
from tenuto.kernel.relay import Diverged, Relay
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.envelope import Event
from tests.support.memory_log import MemoryEventLog
from tests.support.seeds import SEEDS
from tests.support.tally_core import priority_changed
from tests.support.waiting import SECONDS_MAX


def settings_for(server: NatsServer) -> Settings:
    return Settings(nats_url=server.url)


@contextlib.asynccontextmanager
async def connected(server: NatsServer) -> AsyncIterator[bus_module.Client]:
    client = await bus_module.connect(settings_for(server), "test")
    try:
        yield client
    finally:
        await bus_module.close(client)


@contextlib.asynccontextmanager
async def running(*mains: object) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.ensure_future(main) for main in mains]  # type: ignore[call-overload]
    try:
        yield tasks
    finally:
        for task in tasks:
            await stop_task(task)


async def add(log: MemoryEventLog, count: int) -> None:
    head = await log.head()
    await log.append(Append([priority_changed(UUID(int=head + n + 1), n % 5, 1 + n % 9) for n in range(count)]))


class Collector:
    """Follows a feed and checks that positions are dense."""

    def __init__(self, feed: StreamFeed, after: int = 0, batch_max: int = 500) -> None:
        self.events: list[Event] = []
        self._feed, self._after, self._batch_max = feed, after, batch_max
        self._moved = asyncio.Event()

    async def run(self) -> None:
        async for batch in self._feed.follow(self._after, self._batch_max):
            assert 0 < len(batch) <= self._batch_max
            for event in batch:
                assert event.position == self._after + 1
                self._after = event.position
            self.events.extend(batch)
            self._moved.set()

    async def until(self, position: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while self._after < position:
                self._moved.clear()
                await self._moved.wait()


async def stream_ids(client: bus_module.Client) -> list[tuple[int, str]]:
    js = client.jetstream()
    state = (await js.stream_info(subjects.LOG_STREAM)).state
    found = []
    for sequence in range(state.first_seq, state.last_seq + 1):
        message = await js.get_msg(subjects.LOG_STREAM, seq=sequence)
        found.append((sequence, (message.headers or {})["Nats-Msg-Id"]))
    return found


async def stream_reaches(client: bus_module.Client, position: int) -> None:
    js = client.jetstream()
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            with contextlib.suppress(NotFoundError, TimeoutError):
                if (await js.stream_info(subjects.LOG_STREAM)).state.last_seq >= position:
                    return
            await asyncio.sleep(0.02)


async def assert_stream_is_log(client: bus_module.Client, log: MemoryEventLog) -> None:
    expected = [(event.position, str(event.id)) for event in await log.read(0, 10_000)]
    there = await stream_ids(client)
    assert there == expected[there[0][0] - 1 :]


async def test_stream_sequence_is_log_position_and_bodies_are_exact(nats: NatsServer) -> None:
    log = MemoryEventLog()
    await add(log, 700)
    async with connected(nats) as client, running(Relay(log, client, settings_for(nats)).run()):
        collector = Collector(StreamFeed(log, client), batch_max=100)
        async with running(collector.run()):
            await collector.until(700)
            await add(log, 300)
            await collector.until(1000)
        assert collector.events == await log.read(0, 10_000)
        await stream_reaches(client, 1000)
        await assert_stream_is_log(client, log)


async def test_events_arrive_over_the_bus_and_not_only_from_the_log(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_feed, "STREAM_GRACE_SECONDS", 3600.0)
    log = MemoryEventLog()
    async with connected(nats) as client, running(Relay(log, client, settings_for(nats)).run()):
        await add(log, 1)
        await stream_reaches(client, 1)
        collector = Collector(StreamFeed(log, client))
        async with running(collector.run()):
            await collector.until(1)
            await add(log, 50)
            await collector.until(51)


async def test_two_relays_do_no_harm(nats: NatsServer) -> None:
    log = MemoryEventLog()
    async with connected(nats) as one, connected(nats) as two:
        async with running(Relay(log, one, settings_for(nats)).run(), Relay(log, two, settings_for(nats)).run()) as tasks:
            for _ in range(20):
                await add(log, 25)
                await asyncio.sleep(0.005)
            await stream_reaches(one, 500)
            assert not any(task.done() for task in tasks)
        await assert_stream_is_log(one, log)


async def test_a_stream_of_another_log_stops_the_relay(nats: NatsServer) -> None:
    log, other = MemoryEventLog(), MemoryEventLog()
    await add(log, 10)
    await other.append(Append([priority_changed(UUID(int=10_000 + n), 1, 1) for n in range(12)]))
    async with connected(nats) as client:
        async with running(Relay(log, client, settings_for(nats)).run()):
            await stream_reaches(client, 10)
        with pytest.raises(Diverged, match="at 10 the stream has event"):
            await Relay(other, client, settings_for(nats)).run()
        with pytest.raises(Diverged, match="the log has nothing there yet"):
            await Relay(MemoryEventLog(), client, settings_for(nats)).run()
        await assert_stream_is_log(client, log)


async def test_a_stream_made_anew_starts_near_the_head(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "REPUBLISH_EVENTS_MAX", 20)
    log = MemoryEventLog()
    await add(log, 100)
    async with connected(nats) as client, running(Relay(log, client, settings_for(nats)).run()):
        await stream_reaches(client, 100)
        assert (await stream_ids(client))[0][0] == 81
        collector = Collector(StreamFeed(log, client))
        async with running(collector.run()):
            await collector.until(100)


@pytest.mark.parametrize("how", ["deleted", "emptied"])
async def test_a_stream_that_is_lost_while_nothing_happens_is_made_anew(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Effects wait for it, and without it each of their questions is refused at once."""
    monkeypatch.setattr(relay_module, "LOOK_SECONDS", 0.1)
    log = MemoryEventLog()
    await add(log, 20)
    async with connected(nats) as bus, running(Relay(log, bus, settings_for(nats)).run()):
        js = bus.jetstream()
        await _until_stream_is_at(js, 20)
        await js.delete_stream(subjects.LOG_STREAM)
        if how == "emptied":  # by somebody else who made it again
            await bus_module.ensure_stream(js, bus_module.log_stream_config(settings_for(nats), 1))
        await _until_stream_is_at(js, 20)
        assert (await js.stream_info(subjects.LOG_STREAM)).state.messages == 20


async def _until_stream_is_at(js: Any, sequence: int) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            with contextlib.suppress(NotFoundError):
                if (await js.stream_info(subjects.LOG_STREAM)).state.last_seq == sequence:
                    return
            await asyncio.sleep(0.02)


async def test_an_event_too_large_for_a_message_is_read_from_the_log(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "MESSAGE_BYTES_MAX", 100)
    log = MemoryEventLog()
    async with connected(nats) as client, running(Relay(log, client, settings_for(nats)).run()):
        collector = Collector(StreamFeed(log, client))
        async with running(collector.run()):
            await add(log, 10)
            await collector.until(10)
        assert collector.events == await log.read(0, 10)


async def test_without_a_relay_the_feed_reads_the_log(nats: NatsServer) -> None:
    log = MemoryEventLog()
    async with connected(nats) as client:
        collector = Collector(StreamFeed(log, client))
        async with running(collector.run()):
            await add(log, 5)
            await collector.until(5)


async def test_a_slow_reader_loses_messages_and_no_events(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_feed, "QUEUE_MESSAGES_MAX", 10)
    log = MemoryEventLog()
    async with connected(nats) as client, running(Relay(log, client, settings_for(nats)).run()):
        feed = StreamFeed(log, client).follow(0, 7)
        position = 0
        await add(log, 1)
        for round_number in range(1, 6):
            await add(log, 100)
            await stream_reaches(client, 1 + 100 * round_number)
            while position < 1 + 100 * round_number:
                batch = await anext(feed)
                assert [event.position for event in batch] == list(range(position + 1, position + 1 + len(batch)))
                position = batch[-1].position
        await feed.aclose()  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_bus_is_killed_and_wiped_at_random_and_nothing_is_lost_or_doubled(nats: NatsServer, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    log = MemoryEventLog()
    async with connected(nats) as one, connected(nats) as two, connected(nats) as three:
        collector = Collector(StreamFeed(log, three), batch_max=50)
        settings = settings_for(nats)
        async with running(Relay(log, one, settings).run(), Relay(log, two, settings).run(), collector.run()) as tasks:
            for _ in range(6):
                for _ in range(chance.randint(1, 8)):
                    await add(log, chance.randint(1, 60))
                    await asyncio.sleep(chance.random() * 0.02)
                await nats.kill()
                await add(log, chance.randint(0, 30))
                await collector.until(await log.head())
                if chance.random() < 0.5:
                    await nats.wipe()
                await nats.start()
            await add(log, 20)
            head = await log.head()
            await collector.until(head)
            await stream_reaches(three, head)
            assert not any(task.done() for task in tasks)
        assert collector.events == await log.read(0, 10_000)
        await assert_stream_is_log(three, log)
