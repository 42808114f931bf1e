"""An automation that reads the log from NATS, with an account that can do nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from faststream.nats import NatsBroker

from tenuto import automation
from tenuto.automation.bus import BusSource
from tenuto.client import AsyncClient
from tenuto.embedded.nats import NatsServer
from tenuto.kernel.bus import connect, log_stream_config
from tenuto.kernel.bus_permissions import LOG_READS, reader_user
from tenuto.kernel.bus_users import BusUsers
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.envelope import encode_event
from tests.support.automation_world import Around, at
from tests.support.gateway_world import gateway_world
from tests.support.waiting import until_async, until_on_loop


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[Around]:
    async with gateway_world(database, tmp_path, Around) as found:
        yield found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a hundredth, and heartbeats of a tenth: what is tested is their order."""
    monkeypatch.setattr("tenuto.automation.rules.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("tenuto.automation.ledger.HEARTBEAT_SECONDS", 0.2)


async def test_the_bus_with_an_account_that_only_reads(world: Around, tmp_path: Path) -> None:
    users = BusUsers(tmp_path / "users")
    passwords = users.services()
    server = NatsServer(tmp_path / "nats", users=users)
    password = users.add_reader("mine")
    await server.start()
    relay = await connect(Settings(nats_url=server.url, nats_user="relay", nats_password=passwords["relay"]))
    reading = Settings(nats_url=server.url, nats_user=reader_user("mine"), nats_password=password)
    try:
        await world.submitted(3)
        js = relay.jetstream()
        # The stream begins behind the first two events: these are read by REST.
        await js.add_stream(log_stream_config(world.service.doors.base.settings, 3))

        async def publish(after: int) -> None:
            for event in await world.log.read(after, 100):
                await js.publish(subjects.log_subject(event.stream, event.type), encode_event(event))

        await publish(2)
        app, seen = automation.App("mine"), []

        @app.on("ExperimentSubmitted", "ExperimentCompleted")
        async def noted(event: automation.Event[Any], cluster: AsyncClient) -> None:
            seen.append((event.position, event.type))

        async with world.running(app, after=0, source=lambda client: BusSource(reading, client)):
            await world.until(lambda view: at(view, "noted")["behind"] == 0)
            await world.complete(1, 2)
            await publish(3)
            await world.until(lambda view: at(view, "noted")["behind"] == 0 and len(seen) == 5)
            assert (await world.get("/automations/mine"))["source"] == "nats"
        assert [position for position, _ in seen] == [1, 2, 3, 4, 5]
        before = (await js.stream_info(subjects.LOG_STREAM)).state.messages
        assert await refused(reading) == {
            "publish": ["tenuto.log.trial.1-1.X", "tenuto.ingress.tracker.a", "tenuto.scheduler.queue",
                        f"$JS.API.CONSUMER.CREATE.{subjects.LOG_STREAM}.x", f"$JS.API.STREAM.DELETE.{subjects.LOG_STREAM}"],
            "subscribe": ["tenuto.ingress.>", "tenuto.agent.>", "_INBOX.>", "$JS.>"],
        }  # fmt: skip
        assert (await js.stream_info(subjects.LOG_STREAM)).state.messages == before
        assert users.remove_reader("mine")
        server.reload()
        await until_async(lambda: lets_in(reading), lambda let_in: not let_in)  # until the server has read its users again
    finally:
        await relay.close()
        await server.stop()


async def test_a_bus_that_ends_the_connection_at_once_costs_no_event(
    world: Around, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.automation.bus.LOOK_SECONDS", 0.05)
    start = NatsBroker.start

    async def ended(broker: NatsBroker) -> None:
        assert broker._connection is not None
        await broker._connection.close()
        await start(broker)

    monkeypatch.setattr(NatsBroker, "start", ended)
    server = NatsServer(tmp_path / "nats")
    await server.start()
    app, seen = automation.App("mine"), []

    @app.on("ExperimentSubmitted")
    async def noted(event: automation.Event[Any], cluster: AsyncClient) -> None:
        seen.append(event.position)

    try:
        async with world.running(app, after=0, source=lambda client: BusSource(Settings(nats_url=server.url), client)):
            await world.submitted(2)
            await world.until(lambda view: at(view, "noted")["behind"] == 0)
    finally:
        await server.stop()
    assert seen == [1, 2]


async def lets_in(settings: Settings) -> bool:
    try:
        client = await nats.connect(
            settings.nats_url, user=settings.nats_user, password=settings.nats_password, allow_reconnect=False
        )
    except nats.errors.Error:
        return False
    except OSError:  # dropped while the server reads its users: the next one tells
        return True
    await client.close()
    return True


async def refused(settings: Settings) -> dict[str, list[str]]:
    """Of a stranger with these credentials: what the server refuses. Its answers also go nowhere else."""
    errors: list[str] = []

    async def noted(error: Exception) -> None:
        errors.append(str(error).lower())

    client = await nats.connect(
        settings.nats_url, user=settings.nats_user, password=settings.nats_password, error_cb=noted, max_reconnect_attempts=0
    )
    tried = {
        "publish": ["tenuto.log.trial.1-1.X", "tenuto.ingress.tracker.a", "tenuto.scheduler.queue",
                    f"$JS.API.CONSUMER.CREATE.{subjects.LOG_STREAM}.x", f"$JS.API.STREAM.DELETE.{subjects.LOG_STREAM}"],
        "subscribe": ["tenuto.ingress.>", "tenuto.agent.>", "_INBOX.>", "$JS.>"],
    }  # fmt: skip
    for subject in tried["publish"]:
        await client.publish(subject, b"{}")
    for subject in tried["subscribe"]:
        await client.subscribe(subject)
    # Events as answers, to a subject of the log: they must not be stored again.
    await client.publish(LOG_READS, json.dumps({"seq": 3, "batch": 2}).encode(), reply="tenuto.log.trial.1-1.X")
    await client.flush()
    await until_on_loop(lambda: errors, lambda told: len(told) >= sum(map(len, tried.values())))
    await asyncio.sleep(0.2)
    await client.close()
    return {
        "publish": [
            subject for subject in tried["publish"] if any(f'publish to "{subject.lower()}"' in error for error in errors)
        ],
        "subscribe": [
            subject for subject in tried["subscribe"] if any(f'subscription to "{subject.lower()}"' in error for error in errors)
        ],
    }
