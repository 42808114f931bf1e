"""TLS between agents, bus and gateway: on real servers, with self-made certificates."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import nats.errors
import pytest
from faststream.security import SASLPlaintext
from nats.aio.client import Client

from tenuto.embedded.nats import Listen, NatsServer
from tenuto.embedded.process import REST_PORTS
from tenuto.kernel.bus import SafeClient, close, connect
from tenuto.kernel.bus_permissions import agent_user
from tenuto.kernel.bus_users import BusUsers
from tenuto.kernel.certificates import fingerprint_if_self_made, kept_certificate
from tenuto.kernel.durable_consumer import SafeBroker
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.schemas.join_tokens import JoinToken
from tenuto.workers.agent import joining
from tenuto.workers.agent.joining import GatewayAway, NotJoined
from tests.support.gateway_world import World, gateway_world
from tests.support.ports import own_port
from tests.support.waiting import SECONDS_MAX

HOST = "127.0.0.1"


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[tuple[NatsServer, BusUsers]]:
    users = BusUsers(tmp_path / "users")
    users.services()
    users.add_agents(["a"])
    server = NatsServer(tmp_path / "nats", users=users, listen=Listen(HOST, *kept_certificate(tmp_path / "tls", HOST)))
    await server.start()
    yield server, users
    await server.kill()


def settings(server: NatsServer, users: BusUsers, ca: str) -> Settings:
    return Settings(nats_url=server.url, nats_user=agent_user("a"), nats_password=users.password("a") or "", nats_ca_file=ca)


async def test_the_bus_is_reached_by_who_knows_its_certificate_and_by_nobody_else(
    bus: tuple[NatsServer, BusUsers], tmp_path: Path
) -> None:
    server, users = bus
    assert server.url.startswith("tls://")
    client = await connect(settings(server, users, str(tmp_path / "tls/certificate.pem")), "a")
    assert client.is_connected
    assert isinstance(client._transport._io_writer.get_extra_info("ssl_object"), ssl.SSLObject)  # type: ignore[union-attr]
    await client.close()
    strange, _ = kept_certificate(tmp_path / "strange", HOST)
    for ca in (str(strange), ""):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connect(settings(server, users, ca), "a"), 1.5)
    with pytest.raises(SettingsError, match="TENUTO_NATS_CA_FILE"):
        await connect(settings(server, users, str(tmp_path / "missing")), "a")


class Both(NatsServer):
    """Leaves it to the client, as deploy/nats.join.conf does."""

    def _configuration_text(self) -> str:
        return super()._configuration_text() + "allow_non_tls: true\n"


async def test_where_the_server_leaves_tls_to_the_client_the_address_decides(tmp_path: Path) -> None:
    users = BusUsers(tmp_path / "users")
    users.services()
    users.add_agents(["a"])
    ca = tmp_path / "tls/certificate.pem"
    server = Both(tmp_path / "nats", users=users, listen=Listen(HOST, *kept_certificate(tmp_path / "tls", HOST)))
    await server.start()
    try:
        for scheme, secure in (("tls", True), ("nats", False)):
            given = replace(settings(server, users, str(ca)), nats_url=f"{scheme}://{HOST}:{server.port}")
            client = await connect(given, "a")
            found = client._transport._io_writer.get_extra_info("ssl_object")  # type: ignore[union-attr]
            assert isinstance(found, ssl.SSLObject) == secure
            await client.close()
    finally:
        await server.kill()


async def test_no_password_is_sent_to_a_server_that_offers_no_tls() -> None:
    """Whoever stands between could say so in the server's name."""
    heard, over = bytearray(), asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.10.0","auth_required":true,"max_payload":1000}\r\n')
        heard.extend(await reader.read(1000))
        writer.close()
        over.set()

    server = await asyncio.start_server(greet, HOST, 0)
    url = f"tls://{HOST}:{server.sockets[0].getsockname()[1]}"
    options: dict[str, Any] = {"allow_reconnect": False, "connect_timeout": 30}

    async def by_client(client: Client) -> None:
        try:
            await client.connect(url, user="u", password="secret", **options)
        finally:
            await close(client)

    async def by_broker() -> None:
        await SafeBroker(url, security=SASLPlaintext("u", "secret", use_ssl=False), logger=None, **options).connect()

    ways = ((lambda: by_client(SafeClient()), False), (by_broker, False), (lambda: by_client(Client()), True))
    for way, told in ways:
        heard.clear()
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            await way()
        await asyncio.wait_for(over.wait(), SECONDS_MAX)
        over.clear()
        assert (b"secret" in heard) is told, "the second shows that the test hears what is sent"
    server.close()


@pytest.fixture
async def door(database: Any, tmp_path: Path, bus: tuple[NatsServer, BusUsers]) -> AsyncIterator[tuple[World, int]]:
    certificate, key = kept_certificate(tmp_path / "tls", HOST)
    port = own_port(REST_PORTS)
    own = {
        "nats_url": bus[0].url,
        "nats_ca_file": str(certificate),
        "bus_users_directory": str(tmp_path / "users"),
        "rest_cert_file": str(certificate),
        "rest_key_file": str(key),
        "rest_tls_host": HOST,
    }
    async with gateway_world(database, tmp_path, rest_host="127.0.0.2", rest_port=port, **own) as world:
        yield world, port


async def test_a_machine_joins_over_tls_and_checks_whom_it_talks_to(
    door: tuple[World, int], bus: tuple[NatsServer, BusUsers], tmp_path: Path
) -> None:
    world, port = door
    async with httpx.AsyncClient(headers=world.http.headers, timeout=60) as http:
        url = f"https://{HOST}:{port}"
        made = await http.post(f"http://127.0.0.2:{port}/api/v1/join-tokens", json={"pool": "gpus", "url": url})
    token = JoinToken.read(made.json()["token"])
    assert token.fingerprint == fingerprint_if_self_made(tmp_path / "tls/certificate.pem") != ""
    joined = await asyncio.to_thread(joining.join, tmp_path / "agent", token, "far")
    assert (joined.pool, joined.nats_url) == ("gpus", bus[0].url)
    found, kept = joining.settings_of(Settings(agent_directory=str(tmp_path / "agent")))
    assert kept == joined
    client = await connect(found, "far")
    assert client.is_connected
    await client.close()
    assert await asyncio.to_thread(joining.is_member, joined)

    strange, _ = kept_certificate(tmp_path / "strange", HOST)
    other = token.model_copy(update={"fingerprint": fingerprint_if_self_made(strange)})
    with pytest.raises(NotJoined, match="shows another certificate than the join token names, so nothing was sent"):
        await asyncio.to_thread(joining.join, tmp_path / "b", other, "b")
    with pytest.raises(NotJoined, match="is not trusted here"):
        await asyncio.to_thread(joining.join, tmp_path / "c", token.model_copy(update={"fingerprint": ""}), "c")
    assert sorted(world.service.loop.state.joining.agents) == ["far"]
    listener = socket.create_server((HOST, 0))
    nobody = token.model_copy(update={"url": f"https://{HOST}:{listener.getsockname()[1]}"})
    listener.close()
    with pytest.raises(GatewayAway, match="cannot be reached"):
        await asyncio.to_thread(joining.join, tmp_path / "d", nobody, "d")


async def test_a_gateway_that_hangs_up_in_the_handshake_is_only_away(tmp_path: Path) -> None:
    """As one does that is killed, or has no time for it: the machine must try again, and not take it for another gateway."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(hang_up, HOST) as server:
        url = f"https://{HOST}:{server.sockets[0].getsockname()[1]}"
        token = JoinToken(id="jt-000000000001", secret="s" * 43, url=url)
        with pytest.raises(GatewayAway, match="cannot be reached"):
            await asyncio.to_thread(joining.join, tmp_path / "agent", token, "far")


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), (HOST, False)])
async def test_a_door_that_strangers_reach_without_tls_says_so(
    database: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, warned: bool
) -> None:
    async with gateway_world(database, tmp_path, rest_host=host):
        pass
    assert ("without TLS: whoever reads the network reads tokens and join tokens" in caplog.text) is warned


async def test_a_certificate_that_cannot_be_used_is_said_at_the_start(database: Any, tmp_path: Path) -> None:
    certificate, key = kept_certificate(tmp_path / "tls", HOST)
    (tmp_path / "no.pem").write_text("x")
    for own in (
        {"rest_cert_file": str(certificate)},
        {"rest_cert_file": str(tmp_path / "no.pem"), "rest_key_file": str(key)},
        {"rest_cert_file": str(tmp_path / "missing.pem"), "rest_key_file": str(key)},
    ):
        with pytest.raises(SettingsError, match="TENUTO_REST_CERT_FILE"):
            async with gateway_world(database, tmp_path, **own):
                pass


def test_a_certificate_is_kept_and_made_anew_for_another_address(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in kept_certificate(tmp_path, HOST)]
    assert [path.read_bytes() for path in kept_certificate(tmp_path, HOST)] == first
    certificate, key = kept_certificate(tmp_path, "node-1.example.org")
    assert certificate.read_bytes() != first[0]
    assert key.stat().st_mode & 0o777 == 0o600
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
