"""The gateway as a process of its own: what it says when it cannot start, and what users see while the database is away."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.migrations import migrate


class Process:
    """`python -m tenuto.services.gateway` with these settings."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = {**os.environ, **environment}
        self.lines: list[str] = []

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tenuto.services.gateway",
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def read_until(self, words: str) -> str:
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            self.lines.append(raw.decode().rstrip())
            if words in self.lines[-1]:
                return self.lines[-1]
        raise AssertionError("\n".join(self.lines))

    async def stop(self) -> int:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        assert self._process.stdout is not None
        self.lines += (await self._process.stdout.read()).decode().splitlines()
        return await self._process.wait()

    async def ended(self) -> int:
        assert self._process.stdout is not None
        self.lines += (await self._process.stdout.read()).decode().splitlines()
        return await self._process.wait()


@pytest.fixture
async def postgres(server_directory: Path) -> AsyncIterator[PostgresServer]:
    """A server of the test's own, which it may stop."""
    server = PostgresServer(server_directory / "gateway-postgres")
    await server.start()
    await migrate(server.owner_url)
    yield server
    await server.stop()


@pytest.fixture
def environment(nats: NatsServer, tmp_path: Path) -> dict[str, str]:
    return {
        "TENUTO_NATS_URL": nats.url,
        "TENUTO_SHARED_DIRECTORY": str(tmp_path / "shared"),
        "TENUTO_REST_TOKEN_FILE": str(tmp_path / "token"),
        "TENUTO_REST_PORT": "0",
    }


async def test_the_door_answers_503_while_the_database_is_away_and_comes_back(
    postgres: PostgresServer, environment: dict[str, str], tmp_path: Path
) -> None:
    process = Process(environment | {"TENUTO_DATABASE_URL": postgres.url})
    await process.start()
    url = (await process.read_until("REST at ")).split("REST at ")[1]
    headers = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
        assert (await http.get("/experiments")).json() == []
        await postgres.stop()
        for path in ("/experiments", "/events", "/status"):
            response = await http.get(path)
            assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable"), response.text
            assert "database" in response.json()["error"]["message"]
            assert response.headers["retry-after"]
        assert (await http.post("/experiments/1/pause")).status_code == 503
        await postgres.start()
        while (response := await http.get("/experiments")).status_code == 503:  # noqa: ASYNC110  nothing here can tell us
            await asyncio.sleep(0.05)
        assert response.json() == []
    assert await process.stop() == 0


async def test_a_taken_port_is_named(database: object, environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = Process(environment | {"TENUTO_DATABASE_URL": database.url, "TENUTO_REST_PORT": str(port)})  # type: ignore[attr-defined]
        await process.start()
        assert await process.ended() == 64
    assert any(f"Port {port}" in line and "TENUTO_REST_PORT" in line for line in process.lines)
    assert not any("Traceback" in line for line in process.lines)


async def test_a_token_file_that_others_can_read_is_refused(
    database: object, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o644)
    process = Process(environment | {"TENUTO_DATABASE_URL": database.url})  # type: ignore[attr-defined]
    await process.start()
    assert await process.ended() == 64
    assert any("chmod 600" in line for line in process.lines)
    assert not any("Traceback" in line for line in process.lines)
