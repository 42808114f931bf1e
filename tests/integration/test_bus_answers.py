"""Answers over the bus, where the server reads its users again, or who answers connects anew, while a question is under way: as
it happens whenever an agent joins. And what a service that others ask may say at their inboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nats.errors
import pytest
from nats.aio.client import Client

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import questions
from tenuto.kernel.bus import close
from tenuto.kernel.bus_permissions import ASKED, LANES_OF, SERVICES, agent_user
from tenuto.kernel.bus_users import BusUsers
from tenuto.schemas import subjects
from tests.support.waiting import SECONDS_MAX

AGENT = "a"
OF_SERVICES = [
    ("gateway", subject)
    for subject in (subjects.QUEUE, subjects.PAST, subjects.WHAT_IF, subjects.BUS_STATE, subjects.BACKLOG, subjects.NODES)
] + [("launcher", subjects.NODE_TOKENS)]
OF_AGENTS = [
    *((subjects.position(lane, AGENT), service) for service, lanes in LANES_OF.items() for lane in lanes),
    (subjects.heartbeat(AGENT), "launcher"),
    (subjects.context(AGENT), "gateway"),
]
CASES = [
    *((asker, subject, subjects.service_of(subject)) for asker, subject in OF_SERVICES),
    *((agent_user(AGENT), subject, service) for subject, service in OF_AGENTS),
    ("launcher", subjects.assign(AGENT), agent_user(AGENT)),
]
"""Who asks, at which subject, and who answers."""


class Bus(NamedTuple):
    server: NatsServer
    users: BusUsers
    refusals: list[str]

    async def connect(self, user: str) -> Client:
        passwords = {**self.users.services(), agent_user(AGENT): self.users.password(AGENT)}

        async def note(error: Exception) -> None:
            self.refusals.append(str(error))

        options: dict[str, Any] = {"user": user, "password": passwords[user], "inbox_prefix": subjects.inbox(user)}
        return await nats.connect(self.server.url, error_cb=note, **options)

    async def read_users_again(self) -> None:
        """Returns when the server has."""
        before = self._reloads()
        self.users.add_agents(["b"], renew=True)
        assert self.server.reload()
        async with asyncio.timeout(SECONDS_MAX):
            while self._reloads() == before:  # noqa: ASYNC110 - its log alone tells
                await asyncio.sleep(0.01)

    def _reloads(self) -> int:
        return self.server.process.log_file.read_text().count("Reloaded server configuration")


@pytest.fixture(scope="module")
def bus(server_directory: Path) -> Iterator[Bus]:
    users = BusUsers(server_directory / "answers-users")
    users.services()
    users.add_agents([AGENT])
    server = NatsServer(server_directory / "answers", users=users)
    server.start_blocking()
    yield Bus(server, users, [])
    server.process.kill()


@pytest.mark.parametrize("meanwhile", ["reload", "reconnect"])
@pytest.mark.parametrize(("asker", "subject", "answerer"), CASES)
async def test_an_answer_is_taken_though_the_server_forgot_who_was_asked(
    bus: Bus, asker: str, subject: str, answerer: str, meanwhile: str
) -> None:
    bus.refusals.clear()
    asking, answering = await bus.connect(asker), await bus.connect(answerer)
    heard: asyncio.Queue[Any] = asyncio.Queue()
    await answering.subscribe(subject, cb=heard.put)
    for _ in range(2):  # nats-py sends the first ping before what waits to be sent
        await answering.flush()
    if (asker, subject) in OF_SERVICES:
        answer = asyncio.create_task(questions.ask(asking, subject, b"?", SECONDS_MAX))
    else:
        answer = asyncio.create_task(_requested(asking, subject))
    message = await asyncio.wait_for(heard.get(), SECONDS_MAX)
    if meanwhile == "reload":
        await bus.read_users_again()
    else:
        await answering.force_reconnect()
        async with asyncio.timeout(SECONDS_MAX):
            while not answering.is_connected:  # noqa: ASYNC110 - it reconnects by itself
                await asyncio.sleep(0.01)
    await message.respond(b"!")
    assert await answer == b"!"
    await close(asking)
    await close(answering)
    assert bus.refusals == []


async def _requested(client: Client, subject: str) -> bytes:
    return bytes((await client.request(subject, b"?", timeout=SECONDS_MAX)).data)


async def test_a_service_answers_only_what_it_is_asked(bus: Bus) -> None:
    """Whoever takes over one service must not be able to answer for the others, such as for JetStream."""
    bus.refusals.clear()
    for service in SERVICES:
        client = await bus.connect(service)
        own = {f"{subjects.inbox(asker)}.x.{service}" for asker, asked in ASKED.items() if service in asked}
        forged = {f"{subjects.inbox(asker)}.x.{end}" for asker in SERVICES for end in (*SERVICES, "y")} - own
        for subject in own | forged:
            await client.publish(subject, b"forged")
        await client.flush()
        async with asyncio.timeout(SECONDS_MAX):
            while len(bus.refusals) < len(forged):  # noqa: ASYNC110 - the client calls back a moment later
                await asyncio.sleep(0.01)
        await close(client)
        # nats-py tells it in small letters.
        assert {line.rpartition(' to "')[2].rstrip('"') for line in bus.refusals} == {name.lower() for name in forged}, service
        bus.refusals.clear()


async def test_who_asks_a_service_that_does_not_run_hears_it_at_once(bus: Bus) -> None:
    client = await bus.connect("gateway")
    with pytest.raises(nats.errors.NoRespondersError):
        await questions.ask(client, subjects.QUEUE, b"?", SECONDS_MAX)
    await close(client)
