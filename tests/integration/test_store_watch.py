"""A bus whose store is removed under it, or takes no more: noticed, said, and made to work again without loss."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest
from nats.js.errors import NotFoundError

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import relay as relay_module
from tenuto.kernel.durable_consumer import DurableConsumer
from tenuto.kernel.eventlog import Append
from tenuto.kernel.relay import Relay
from tenuto.schemas import subjects
from tenuto.schemas.bus import BusState
from tests.integration.test_relay import connected, running, settings_for, stream_ids, stream_reaches
from tests.support.memory_log import MemoryEventLog
from tests.support.tally_core import priority_changed
from tests.support.waiting import until_async

BLOCK_BYTES = 8 << 20
"""JetStream opens another file after so much of one stream."""


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    await until_async(true)


async def add_large(log: MemoryEventLog, count: int) -> None:
    """Events of a megabyte: a few of them fill a file of the stream."""
    head = await log.head()
    events = [priority_changed(UUID(int=head + n + 1), 1, 1) for n in range(count)]
    await log.append(Append([replace(event, payload=b'{"text":"' + b"x" * 800_000 + b'"}') for event in events]))


async def test_a_log_stream_that_stores_nothing_is_made_anew(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relay_module, "ACK_SECONDS_MAX", 1.0)
    log = MemoryEventLog()
    async with connected(nats) as client, running(Relay(log, client, settings_for(nats)).run()) as tasks:
        await add_large(log, 2)
        await stream_reaches(client, 2)
        shutil.rmtree(nats._store)

        async def state() -> BusState:
            return BusState.from_json((await client.request(subjects.BUS_STATE, b"", timeout=30)).data)

        async def ill() -> bool:
            return not (await state()).ok

        async def well() -> bool:
            return (await state()).ok

        await until(well)  # what is open goes on
        await add_large(log, 2 + BLOCK_BYTES // 800_000)
        await until(ill)
        assert f"its stream {subjects.LOG_STREAM} does not store messages" in (await state()).message
        await stream_reaches(client, await log.head())
        await until(well)
        there = await stream_ids(client)
        assert there[-1] == (await log.head(), str((await log.read(await log.head() - 1, 1))[0].id))
        assert not any(task.done() for task in tasks)
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert any("does not store messages" in record.getMessage() for record in said)
    assert len(said) < 20  # growing times between repetitions


async def test_reports_are_taken_again_after_their_stream_or_consumer_was_lost(nats: NatsServer) -> None:
    log, settings = MemoryEventLog(), settings_for(nats)
    got: list[bytes] = []

    async def take(message: object) -> None:
        got.append(message.data)  # type: ignore[attr-defined]
        await message.ack()  # type: ignore[attr-defined]

    async def establish(js: object) -> object:
        from nats.js.api import AckPolicy, ConsumerConfig

        from tenuto.kernel.bus import ensure_streams

        await ensure_streams(js, settings)  # type: ignore[arg-type]
        return ConsumerConfig(
            name="c", durable_name="c", filter_subject="tenuto.ingress.tracker.*", ack_policy=AckPolicy.EXPLICIT
        )

    consumer = DurableConsumer(
        settings,
        "c",
        subjects.INGRESS_STREAM,
        "tenuto.ingress.tracker.*",
        establish,
        take,
        "a test",  # type: ignore[arg-type]
    )
    async with connected(nats) as client, running(Relay(log, client, settings).run(), consumer.run()):
        js = client.jetstream(timeout=1)

        async def delivered(body: bytes) -> None:
            async def arrives() -> bool:
                try:
                    await js.publish(subjects.ingress("tracker", "a"), body, timeout=0.5)
                except Exception:
                    return False
                await asyncio.sleep(0.1)
                return body in got

            await until(arrives)

        await delivered(b"first")
        await js.delete_consumer(subjects.INGRESS_STREAM, "c")
        await delivered(b"after the consumer was deleted")
        await js.delete_stream(subjects.INGRESS_STREAM)
        await delivered(b"after the stream was deleted")
        made = (await js.stream_info(subjects.INGRESS_STREAM)).created
        shutil.rmtree(nats._store)

        async def made_anew() -> bool:
            try:
                return bool((await js.stream_info(subjects.INGRESS_STREAM)).created != made)
            except NotFoundError:
                return False

        await until(made_anew)
        await delivered(b"after the store was removed")


async def test_trial_messages_leave_nothing_behind(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenuto.kernel import store_watch

    monkeypatch.setattr(store_watch, "PROBE_SECONDS_BETWEEN", 0.01)
    async with connected(nats) as client, running(Relay(MemoryEventLog(), client, settings_for(nats)).run()):
        js = client.jetstream()

        async def tried() -> bool:
            try:
                return bool((await js.stream_info(subjects.INGRESS_STREAM)).state.last_seq >= 20)
            except NotFoundError:
                return False

        await until(tried)
        assert (await js.stream_info(subjects.INGRESS_STREAM)).state.messages <= 1
