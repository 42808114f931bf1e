"""Errors of asyncpg during a restart of the database become a 503 at the gateway and LogUnavailable in services, no traceback."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest
from fastapi import FastAPI

from tenuto.kernel.eventlog import LogUnavailable, NotWritable
from tenuto.kernel.eventlog_postgres import translated
from tenuto.services.gateway.http import errors

AWAY = [
    asyncpg.InternalClientError("got result for unknown protocol state 3"),
    asyncpg.InterfaceError("the underlying connection is closed"),
    asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
    asyncpg.PostgresConnectionError("lost"),
    asyncpg.CannotConnectNowError("the database system is starting up"),
    asyncpg.AdminShutdownError("terminating connection due to administrator command"),
    asyncpg.CrashShutdownError("terminating connection because of crash of another server process"),
    asyncpg.QueryCanceledError("canceling statement due to user request"),
    asyncpg.TooManyConnectionsError("sorry, too many clients already"),
    asyncpg.PostgresIOError("could not read block 0"),
    asyncpg.DeadlockDetectedError("deadlock detected"),
    ConnectionResetError(104, "Connection reset by peer"),
    TimeoutError(),
]
KINDS = [type(error).__name__ for error in AWAY]


class _Pool:
    async def expire_connections(self) -> None:
        pass


@pytest.mark.parametrize("error", AWAY, ids=KINDS)
async def test_the_door_answers_503(error: Exception) -> None:
    app = FastAPI()
    errors.install(app)

    @app.get("/")
    async def fails() -> None:
        raise error

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://door") as door:
        answer = await door.get("/")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert answer.headers["Retry-After"]


@pytest.mark.parametrize("error", AWAY, ids=KINDS)
async def test_the_log_is_unavailable_and_not_broken(error: Any) -> None:
    if isinstance(error, asyncpg.PostgresError):
        error.sqlstate = type(error).sqlstate
    with pytest.raises(LogUnavailable):
        async with translated(_Pool()):  # type: ignore[arg-type]
            raise error


async def test_a_full_disk_is_told_apart() -> None:
    error: Any = asyncpg.DiskFullError("could not extend file")
    with pytest.raises(NotWritable):
        async with translated(_Pool()):  # type: ignore[arg-type]
            raise error
