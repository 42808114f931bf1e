"""An outage of the cluster is no attempt of those that react to its events: targets of webhooks, and handlers of a reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import nats.errors
import pytest

from tenuto.automation import reader
from tenuto.client.errors import Interrupted, Refused
from tenuto.kernel.clock import SystemClock
from tenuto.kernel.eventlog import LogUnavailable
from tenuto.schemas.webhooks import AgentLostTrigger
from tenuto.services.gateway.notices.adapters.deliveries import Deliveries
from tenuto.services.gateway.notices.adapters.messages import Message
from tenuto.services.gateway.notices.adapters.targets.target import Delivered, NotNow, Target
from tenuto.services.gateway.notices.commands import NoteDelivery
from tenuto.services.gateway.notices.policies import delivering
from tenuto.services.gateway.notices.state import Notice, Webhook
from tenuto.services.gateway.state import State
from tests.support.notice_world import LOST, World
from tests.support.waiting import SECONDS_MAX


class Loop:
    """Service loop that has one state, and keeps the outcomes that are recorded."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.noted: asyncio.Queue[NoteDelivery] = asyncio.Queue()

    def on_folded(self, folded: Callable[[State, Sequence[Any]], None]) -> None:
        folded(self.state, ())

    async def wait_ready(self) -> None:
        return

    async def submit(self, command: NoteDelivery) -> None:
        self.noted.put_nowait(command)
        await asyncio.Event().wait()  # the state stays as it is, and the notice would be sent again


class Fake:
    """Target that refuses the first message, and takes the second."""

    def __init__(self) -> None:
        self.errors: list[Exception] = [NotNow("HTTP 500")]

    async def send(self, message: Message) -> Delivered:
        if self.errors:
            raise self.errors.pop()
        return Delivered("HTTP 204")

    async def close(self) -> None:
        return


@pytest.mark.parametrize("kind", [LogUnavailable, ConnectionRefusedError])
async def test_a_webhooks_attempts_do_not_count_those_without_a_database(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    monkeypatch.setattr(delivering, "RETRIES", replace(delivering.RETRIES, first_seconds=0.001, max_seconds=0.001))
    world = World(AgentLostTrigger())
    world.happens(LOST)
    clock, target, opening, composing = SystemClock(), Fake(), [kind()] * 5, [kind()] * 5
    now_us = clock.now_us()
    hook = replace(
        world.hook, waiting=world.hook.waiting.set(1, replace(world.hook.waiting[1], time_us=now_us, queued_us=now_us))
    )
    loop = Loop(State(notices=replace(world.notices, webhooks=world.notices.webhooks.set("hook", hook))))

    async def opened(_: Webhook) -> Target:
        if opening:
            raise opening.pop()
        return target

    async def compose(webhook: Webhook, notices: Sequence[Notice]) -> Message:
        if composing:
            raise composing.pop()
        return Message(id="m", webhook=webhook.name, time_us=1, notices=(), reference="")

    deliveries = Deliveries(cast(Any, loop), clock, opened, compose, lambda: 0.5)
    task = asyncio.create_task(deliveries.run())
    async with asyncio.timeout(SECONDS_MAX):
        noted = await loop.noted.get()
    task.cancel()
    await asyncio.wait([task])
    assert opening == composing == target.errors == []
    assert (noted.outcome, noted.attempts, noted.answer) == ("delivered", 2, "HTTP 204")


def test_a_readers_handler_that_cannot_reach_the_cluster_has_not_failed() -> None:
    told = {
        "position": 1,
        "id": "00000000-0000-0000-0000-000000000001",
        "type": "AgentLost",
        "data": {"agent_id": "a", "reason": "b"},
        "time_us": 1,
        "actor": "scheduler",
        "schema_version": 1,
    }
    delivery = reader._EventDelivery(lambda event: asyncio.sleep(0), told)
    kinds = {
        type(error): delivery.failure(error).kind
        for error in (
            Interrupted("x"),
            nats.errors.ConnectionClosedError(),
            nats.errors.MaxPayloadError(),
            Refused("x"),
            OSError("another neighbour"),
        )
    }
    assert list(kinds.values()) == ["outage", "outage", "attempt", "attempt", "attempt"]
