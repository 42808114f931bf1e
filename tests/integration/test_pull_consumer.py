"""A pulled consumer takes no more than it has room for, in messages and in bytes: on a real NATS server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig

from tenuto.embedded.nats import NatsServer
from tenuto.kernel.bus import ensure_streams
from tenuto.kernel.pull_consumer import PulledConsumer
from tenuto.schemas import subjects
from tests.integration.test_relay import connected, running, settings_for
from tests.support.waiting import SECONDS_MAX

MESSAGES = 60
SUBJECT = subjects.ingress("tracker", "a")


@pytest.mark.parametrize(("body_bytes", "messages_max", "bytes_max"), [(100_000, 1_000, 1_000_000), (10, 10, 1_000_000)])
async def test_what_is_taken_and_not_released_stays_within_both_bounds(
    nats: NatsServer, body_bytes: int, messages_max: int, bytes_max: int
) -> None:
    settings, held, taken, most = settings_for(nats), list[Msg](), 0, 0

    async def establish(js: Any) -> ConsumerConfig:
        return ConsumerConfig(name="c", durable_name="c", filter_subject=SUBJECT, ack_policy=AckPolicy.EXPLICIT)

    def take(message: Msg) -> None:
        nonlocal taken, most
        held.append(message)
        taken += 1
        most = max(most, len(held))

    async with connected(nats) as client:
        js = client.jetstream()
        await ensure_streams(js, settings)
        for _ in range(MESSAGES):
            await js.publish(SUBJECT, b"x" * body_bytes)
        consumer = PulledConsumer(settings, subjects.INGRESS_STREAM, "c", establish, take, messages_max, bytes_max)
        async with running(consumer.run()), asyncio.timeout(SECONDS_MAX):
            while taken < MESSAGES:
                await asyncio.sleep(0.02)
                while held and consumer._wanted <= 0:  # its request has ended: there is no room for more
                    await held[0].ack()
                    consumer.release(held.pop(0))
    assert most <= min(messages_max, bytes_max // body_bytes)
