"""The reader for FastStream applications, as its page shows it, through restarts and a wipe of the bus and an end of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest

from tenuto.automation.reader import Event, FilePosition, HandledEvent, Reader
from tenuto.embedded.nats import NatsServer
from tenuto.kernel.bus import close, connect
from tenuto.kernel.bus_permissions import reader_user
from tenuto.kernel.bus_users import BusUsers
from tenuto.kernel.relay import Relay
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tests.support.automation_world import Around
from tests.support.gateway_world import gateway_world
from tests.support.waiting import until_async

ROOT = Path(__file__).parents[2]
[(FILE, CODE)] = re.findall(
    r"^```python file=(\S+)\n(.*?)^```$", (ROOT / "docs" / "faststream.md").read_text(), re.MULTILINE | re.DOTALL
)
WANTED = ("ExperimentSubmitted", "ExperimentCompleted")


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[Around]:
    async with gateway_world(database, tmp_path, Around) as found:
        yield found


class Bus:
    """The cluster's, with its relay, and the account of a reader."""

    def __init__(self, world: Around, directory: Path) -> None:
        self._world, self._users = world, BusUsers(directory / "users")
        self._passwords = self._users.services()
        self.password = self._users.add_reader("mine")
        self.server = NatsServer(directory / "nats", users=self._users)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.server.start()
        settings = Settings(nats_url=self.server.url, nats_user="relay", nats_password=self._passwords["relay"])
        client = await connect(settings)
        relay = asyncio.create_task(Relay(self._world.log, client, settings).run())
        try:
            yield
        finally:
            await stop_task(relay)
            await close(client)
            await self.server.stop()

    @property
    def environment(self) -> dict[str, str]:
        user = reader_user("mine")
        return {"TENUTO_NATS_URL": self.server.url, "TENUTO_NATS_USER": user, "TENUTO_NATS_PASSWORD": self.password}


class Program:
    """The example of the page, as a process that can be killed."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory, self._environment = directory, environment

    async def __aenter__(self) -> asyncio.subprocess.Process:
        (self._directory / FILE).write_text(CODE)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, FILE, cwd=self._directory, env=os.environ | self._environment
        )
        return self._process

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


async def test_the_example_loses_no_event_over_restarts_and_a_wipe_of_the_bus(world: Around, tmp_path: Path) -> None:
    bus, own = Bus(world, tmp_path), NatsServer(tmp_path / "own")
    await own.start()
    heard: list[tuple[int, str]] = []
    listening = await nats.connect(own.url)

    async def hear(message: Any) -> None:
        position, type_ = message.data.decode().split()[:2]
        assert message.headers["Nats-Msg-Id"] == position
        heard.append((int(position), type_))

    await listening.subscribe("experiments", cb=hear)
    await listening.flush()

    async def all_of_the_log() -> list[tuple[int, str]]:
        return [(event.position, event.type) for event in await world.log.read(0, 1_000) if event.type in WANTED]

    async def caught_up() -> None:
        wanted = await all_of_the_log()
        await until_async(lambda: asyncio.sleep(0, set(heard)), lambda found: set(wanted) <= found)

    try:
        async with contextlib.AsyncExitStack() as before:
            await before.enter_async_context(bus.running())
            url = str(world.http.base_url)
            found = {"TENUTO_URL": url, "TENUTO_TOKEN": world.service.doors.base.token, "NATS_URL": own.url} | bus.environment
            async with Program(tmp_path, found) as process:
                await world.submitted(3)
                await caught_up()
                await bus.server.kill()
                await world.complete(1)
                await caught_up()  # by REST, while the bus is away
                await bus.server.start()
                await world.submitted(2)
                await caught_up()
                process.kill()
                await process.wait()
            first, heard[:] = list(heard), []
            assert first == sorted(set(first)), "in order, and none twice while the program lives"
            await before.aclose()
            await bus.server.wipe()
            await world.complete(2, 3)
        async with Program(tmp_path, found) as process:  # while the bus is away
            await caught_up_with(heard, all_of_the_log, first[-1][0] - 1)
            async with bus.running():
                await world.submitted(2)
                await caught_up_with(heard, all_of_the_log, first[-1][0])
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
        assert heard == sorted(set(heard))
        assert sorted({*first, *heard}) == await all_of_the_log()
        assert len(first) + len(heard) - len({*first, *heard}) <= 1, "again is only what was under way when it was killed"
    finally:
        await listening.close()
        await own.stop()


async def caught_up_with(heard: list[tuple[int, str]], read: Any, after: int) -> None:
    wanted = {item for item in await read() if item[0] > after + 1}
    await until_async(lambda: asyncio.sleep(0, set(heard)), lambda found: wanted <= found)


async def test_a_handler_that_fails_gets_the_event_again_and_none_is_passed_over(
    world: Around, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.automation.reader.PAUSE_SECONDS", 0.01)
    seen: list[int] = []
    done = asyncio.Event()
    reader = Reader(FilePosition(tmp_path / "position"), target=world.target, settings=Settings())

    @reader.on("ExperimentSubmitted")
    async def noted(event: Event[Any]) -> None:
        seen.append(event.position)
        if len(seen) < 3:
            raise OSError("the other side is away")
        if event.position == 2:
            done.set()

    await world.submitted(2)
    await _run(reader, done, 2)
    assert seen == [1, 1, 1, 2]


async def test_it_goes_on_behind_the_place_that_is_kept_and_refuses_that_of_another_log(
    world: Around, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.automation.reader.AWAY_SECONDS", 0.01)
    monkeypatch.setattr("tenuto.automation.reader.BEHIND_SECONDS_MAX", 0.02)
    await world.submitted(3)
    first, second, _ = await world.log.read(0, 3)
    position, seen, done = FilePosition(tmp_path / "position"), list[int](), asyncio.Event()

    def made() -> Reader:
        reader = Reader(position, target=world.target, settings=Settings())

        @reader.on()
        async def noted(event: Event[Any]) -> None:
            seen.append(event.position)
            done.set()

        return reader

    await position.save(HandledEvent(2, str(second.id)))
    await _run(made(), done, 3)
    assert (seen, (await position.load() or first).position) == ([3], 3)
    for place in (HandledEvent(2, str(first.id)), HandledEvent(50, str(first.id))):
        await position.save(place)
        with pytest.raises(ValueError, match=f"The position {place.position} of this reader belongs to another log"):
            await made().run()
    position.file.write_text("something else")
    with pytest.raises(ValueError, match="holds no position of a reader"):
        await made().run()
    assert seen == [3]


async def _run(reader: Reader, done: asyncio.Event, place: int) -> None:
    """Until `done`, and until the place of its event is kept."""
    task = asyncio.create_task(reader.run())
    waiting = asyncio.create_task(done.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    if task.done():
        task.result()
    position = reader._position
    await until_async(position.load, lambda kept: kept is not None and kept.position >= place)
    await stop_task(task)
