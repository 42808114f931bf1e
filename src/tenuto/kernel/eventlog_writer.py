"""The connection over which one process appends to the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

CALL = "SELECT first_position, versions FROM append_events($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17)"


class Writer:
    """One connection for appends, with the statement prepared: a pool would cost a tenth of a small append, and appends take
    turns at the head of the log anyway. Opened at the first append, and again after a loss."""

    def __init__(self, connect: Callable[[], Awaitable[asyncpg.Connection]], seconds_max: float) -> None:
        self._connect = connect
        self._seconds_max = seconds_max
        self._turn = asyncio.Lock()
        self._connection: asyncpg.Connection | None = None
        self._call: Any = None

    async def append(self, *values: Any) -> Any:
        """Row that the database function returns. Raises asyncpg's errors, OSError and TimeoutError."""
        async with self._turn:
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._connect()
                    self._call = await self._connection.prepare(CALL)
                return await self._call.fetchrow(*values, timeout=self._seconds_max)
            except asyncpg.PostgresError:
                raise  # the server's answer: the connection is sound, or knows that it is closed
            except BaseException:
                self.terminate()  # whatever state it is in, it is not used again
                raise

    def terminate(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
