"""A client of the bus whose first connection takes several attempts, or long."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import bus as bus_module
from tenuto.kernel.bus_users import BusUsers
from tenuto.kernel.durable_consumer import DurableConsumer
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tests.support.waiting import SECONDS_MAX, until_on_loop

FORBIDDEN = "tenuto.log.trial.1-1"
GREETING_SECONDS = 3.0
MEBIBYTES_UNSENT = 24
"""More than the buffers of two sockets take."""


async def established(_: Any) -> Any:
    await asyncio.Event().wait()  # a consumer that is never made


async def ignored(_: Any) -> None: ...


async def said(caplog: pytest.LogCaptureFixture, *words: str) -> None:
    await until_on_loop(lambda: caplog.messages, lambda lines: any(all(word in line for word in words) for line in lines))


@pytest.mark.parametrize("kind", ["client", "durable consumer"])
async def test_refusals_are_told_after_a_first_connection_that_took_attempts(
    kind: str, server_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    directory = server_directory / f"late-{kind.replace(' ', '-')}"
    users = BusUsers(directory / "users")
    password = users.services()["gateway"]
    server = NatsServer(directory / "nats", users=users)
    await server.start()
    await server.stop()  # it keeps its port
    settings = Settings(nats_url=server.url, nats_user="gateway", nats_password=password)
    consumer = DurableConsumer(settings, "early", subjects.LOG_STREAM, FORBIDDEN, established, ignored, "")
    client: Client | None = None

    async def connect() -> None:
        nonlocal client
        if kind == "client":
            client = await bus_module.connect(settings, "early")
        else:
            await consumer.run()

    connecting = asyncio.create_task(connect())
    try:
        await said(caplog, "early cannot reach NATS")
        await server.start()
        await said(caplog, "has its link to NATS again")
        found = client or consumer._connection
        assert found is not None
        await found.publish(FORBIDDEN, b"forged")
        await found.flush()
        await said(caplog, "early: the bus reports:", "violation", FORBIDDEN)
    finally:
        await stop_task(connecting)
        if client is not None:
            await bus_module.close(client)
        await server.kill()


async def test_a_server_without_time_for_its_clients_is_reached(server_directory: Path) -> None:
    """It greets each connection after some seconds: whoever gave up sooner would never be connected."""
    server = NatsServer(server_directory / "slow")
    await server.start()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(GREETING_SECONDS)
        there, back = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(_pass(reader, back), _pass(there, writer))

    async with await asyncio.start_server(serve, "127.0.0.1") as between:
        url = f"nats://127.0.0.1:{between.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(SECONDS_MAX):
            client = await bus_module.connect(Settings(nats_url=url), "patient")
        assert client.is_connected
        await bus_module.close(client)
    await server.kill()


async def test_a_server_that_takes_nothing_holds_up_no_end(server_directory: Path) -> None:
    server = NatsServer(server_directory / "stopped")
    await server.start()
    client = await bus_module.connect(Settings(nats_url=server.url), "leaving")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for _ in range(MEBIBYTES_UNSENT):
            await client.publish("anything", bytes(1_000_000))
        async with asyncio.timeout(SECONDS_MAX):
            await bus_module.close(client)
    finally:
        await server.kill()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
