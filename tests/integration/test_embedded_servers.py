"""The embedded servers: found again, same port, killed and started again, clear errors."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import asyncpg
import nats as nats_client
import pytest

from tenuto.embedded import process
from tenuto.embedded.nats import NatsServer
from tenuto.embedded.postgres import PostgresServer
from tenuto.embedded.process import ServerError


async def test_postgres_keeps_port_and_data_when_killed(
    server_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of root, the usual temporary directory may be one that the account of the server cannot pass through.
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    server = PostgresServer(server_directory / "killed")
    await server.start()
    try:
        port = server.port
        connection = await asyncpg.connect(server.owner_url)
        await connection.execute("CREATE TABLE kept (x int); INSERT INTO kept VALUES (42)")
        await connection.close()
        await server.kill()
        assert not server.is_running()
        await server.start()
        assert server.port == port
        connection = await asyncpg.connect(server.owner_url)
        assert await connection.fetchval("SELECT x FROM kept") == 42
        await connection.close()
    finally:
        await server.stop()


async def test_a_second_handle_adopts_the_running_server(postgres_server: PostgresServer, nats: NatsServer) -> None:
    again = PostgresServer(postgres_server.data_dir)
    assert again.adopt()
    assert (again.pid, again.owner_url) == (postgres_server.pid, postgres_server.owner_url)
    bus = NatsServer(nats.data_dir)
    await bus.start()
    assert (bus.pid, bus.url) == (nats.pid, nats.url)


@pytest.mark.parametrize("kind", [PostgresServer, NatsServer])
async def test_a_port_that_is_taken_before_the_first_start_is_chosen_anew_and_a_known_one_is_not(
    server_directory: Path, kind: type[PostgresServer] | type[NatsServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        free = process.choose_port()
        ports = iter([taken, free])
        monkeypatch.setattr(process, "choose_port", lambda: next(ports))
        server = kind(server_directory / f"crowded-{kind.__name__}")
        await server.start()
        try:
            assert server.port == free
        finally:
            await server.stop()
        (server.data_dir / "port").write_text(f"{taken}\n")
        with pytest.raises(ServerError, match=rf"^Port {taken} .* is taken by another program"):
            await kind(server.data_dir).start()


async def test_postgres_wants_a_password(postgres_server: PostgresServer) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres_server.url.replace(postgres_server.url.split(":")[2].split("@")[0], "wrong"))


async def test_nats_keeps_its_store_when_killed_and_loses_it_when_wiped(nats: NatsServer) -> None:
    async def messages() -> int:
        client = await nats_client.connect(nats.url)
        try:
            return sum(stream.state.messages for stream in await client.jetstream().streams_info())
        finally:
            await client.close()

    client = await nats_client.connect(nats.url)
    await client.jetstream().add_stream(name="S", subjects=["s"])
    await client.jetstream().publish("s", b"x")
    await client.close()
    await nats.kill()
    await nats.start()
    assert await messages() == 1
    await nats.kill()
    await nats.wipe()
    await nats.start()
    assert await messages() == 0


async def test_a_taken_port_is_named(tmp_path, nats: NatsServer) -> None:
    (tmp_path / "port").write_text(str(nats.port))
    with pytest.raises(ServerError, match=rf"Port {nats.port} .* is taken by another program"):
        await NatsServer(tmp_path).start()


async def test_a_file_in_the_way_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServerError, match="a part of this path is a file"):
        await NatsServer(tmp_path / "file" / "bus").start()
