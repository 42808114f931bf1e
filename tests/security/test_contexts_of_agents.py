"""Contexts over the bus, for agents without a shared directory: whole, verified, and only those of their own allocations."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats as nats_module
import nats.errors
import pytest
from nats.aio.client import Client

from tenuto.embedded.nats import NatsServer
from tenuto.kernel.bus_permissions import agent_user
from tenuto.kernel.bus_users import BusUsers
from tenuto.kernel.report_tokens import ReportTokens, load_report_tokens
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.services.gateway.experiments.adapters import context_requests
from tenuto.services.gateway.experiments.adapters.context_requests import ContextServer as Sender
from tenuto.workers.agent import archives
from tenuto.workers.agent.archives import ContextUnavailable, SentArchives
from tenuto.workers.agent.contexts import Contexts
from tests.support.gateway_world import CONTEXT, World, gateway_world, granted, released, requested
from tests.support.waiting import until_on_loop

OWN = "1-1-1"
HASH = hashlib.sha256(CONTEXT).hexdigest()


@dataclass
class Node:
    """What of an agent asks for contexts."""

    bus: Client
    contexts: Contexts
    refusals: list[str]
    tokens: dict[str, str]


@dataclass
class Scene:
    gateway: World
    tokens: ReportTokens
    nodes: dict[str, Node]


@pytest.fixture
async def scene(database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(context_requests, "PIECE_BYTES", 50)
    monkeypatch.setattr(archives, "SILENT_SECONDS_MAX", 0.3)
    users = BusUsers(tmp_path / "users")
    server, services, agents = NatsServer(tmp_path / "nats", users=users), users.services(), users.add_agents(["a", "b"])
    await server.start()
    async with gateway_world(database, tmp_path) as gateway:
        assert (await gateway.submit()).status_code == 201
        await gateway.record(requested(1), granted(OWN))
        bus = await connected(server, "gateway", services["gateway"], [])
        pool = gateway.service._parts.pool
        sender = Sender(bus, pool, gateway.shared / "contexts")
        sending = asyncio.create_task(sender.run())
        await asyncio.wait_for(sender.listening.wait(), timeout=30)
        await bus.flush()  # the server has heard of the subscription, or nobody answers the first request
        nodes = {}
        for name, password in agents.items():
            refusals: list[str] = []
            known: dict[str, str] = {}
            own = await connected(server, agent_user(name), password, refusals)
            sent = SentArchives(
                tmp_path / name, name, told(own), lambda allocation, known=known: known.get(allocation, ""), 10_000
            )
            nodes[name] = Node(own, Contexts(sent, tmp_path / name), refusals, known)
        yield Scene(gateway, await load_report_tokens(pool), nodes)
        await stop_task(sending)
        for client in (bus, *(node.bus for node in nodes.values())):
            await client.close()
    await server.kill()


def told(bus: Client) -> Callable[[], Client]:
    return lambda: bus


async def connected(server: NatsServer, user: str, password: str, refusals: list[str]) -> Client:
    async def note(error: Exception) -> None:
        refusals.append(str(error))

    return await nats_module.connect(
        server.url, user=user, password=password, inbox_prefix=subjects.inbox(user), error_cb=note, allow_reconnect=False
    )


async def test_an_agent_gets_the_contexts_of_its_own_allocations_and_no_others(scene: Scene, tmp_path: Path) -> None:
    a, b = scene.nodes["a"], scene.nodes["b"]
    a.tokens[OWN] = scene.tokens.token("a", OWN)
    unpacked = await a.contexts.unpack(HASH, OWN)
    assert [path.name for path in unpacked.iterdir()] == ["model_def.py"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == [HASH], "the archive is removed"
    # Another agent: without a token, and with tokens of other allocations.
    for token in ("", scene.tokens.token("a", "1-1-2"), scene.tokens.token("b", "1-1-2"), "\u00e9"):
        b.tokens[OWN] = token
        with pytest.raises(ContextUnavailable, match="is not this agent's"):
            await b.contexts.unpack(HASH, OWN)
    # In the name of the other one, which the bus does not take; and as one that hears what others are sent.
    with pytest.raises(nats.errors.Error):
        await b.bus.request(subjects.context("a"), b"{}", timeout=0.3)
    await b.bus.subscribe(subjects.CONTEXTS, cb=None)
    await b.bus.flush()
    await until_on_loop(lambda: b.refusals, lambda told: len(told) >= 2)  # the client calls nobody
    assert all("permissions violation" in text.lower() for text in b.refusals)


async def test_what_is_damaged_too_large_ended_or_unreadable_is_not_unpacked(scene: Scene, tmp_path: Path) -> None:
    a = scene.nodes["a"]
    a.tokens[OWN] = scene.tokens.token("a", OWN)
    answer = await a.bus.request(subjects.context("a"), b'{"allocation_id": "../../etc/passwd"}', timeout=60)
    assert "cannot be read" in answer.headers["Tenuto-Refused"]
    archive = scene.gateway.shared / "contexts" / f"{HASH}.tar.gz"
    sound = archive.read_bytes()
    archive.chmod(0o600)
    archive.write_bytes(sound[:-1] + b"x")
    with pytest.raises(ContextUnavailable, match="is damaged"):
        await a.contexts.unpack(HASH, OWN)
    archive.write_bytes(bytes(10_001))
    with pytest.raises(ContextUnavailable, match="set TENUTO_CONTEXT_BYTES_MAX"):
        await a.contexts.unpack(HASH, OWN)
    archive.unlink()
    with pytest.raises(ContextUnavailable, match="is gone from the gateway"):
        await a.contexts.unpack(HASH, OWN)
    archive.write_bytes(sound)
    with pytest.raises(ContextUnavailable, match="was ended before"):
        await a.contexts.unpack(HASH, OWN, lambda: False)
    await scene.gateway.record(released(OWN))
    with pytest.raises(ContextUnavailable, match="has ended"):
        await a.contexts.unpack(HASH, OWN)
    assert list((tmp_path / "a").iterdir()) == []
