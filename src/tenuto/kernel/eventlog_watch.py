"""Notifies all watchers in this process that the log has grown, over one listening connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg

from tenuto.kernel.backoff import Backoff, Seldom
from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.eventlog import WATCH_SECONDS_MAX
from tenuto.kernel.tasks import stop_task

CHANNEL = "tenuto_log"
RECONNECT_SECONDS = 0.2
"""Pause before the next attempt: PostgreSQL restarts in a fraction of a second. Doubles up to RECONNECT_SECONDS_MAX."""
RECONNECT_SECONDS_MAX = 2.0
QUERY_SECONDS_MAX = 5.0
"""Time after which a connection that does not answer is replaced."""

logger = logging.getLogger(__name__)


class HeadWatcher:
    """Listens from the first watcher on. Notifications bring the head at once; a poll makes up for lost ones."""

    def __init__(self, connect: Callable[[], Awaitable[asyncpg.Connection]]) -> None:
        self._connect = connect
        self._head: int | None = None
        self._watchers: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None

    async def watch(self) -> AsyncIterator[int]:
        wake = asyncio.Event()
        self._watchers.add(wake)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="log head watcher")
        if self._head is not None:
            wake.set()
        try:
            while True:
                await wake.wait()
                wake.clear()
                if self._head is not None:
                    yield self._head
        finally:
            self._watchers.discard(wake)

    async def close(self) -> None:
        if self._task is not None:
            await stop_task(self._task)
            self._task = None

    def _moved(self, head: int) -> None:
        self._head = head
        for wake in self._watchers:
            wake.set()

    async def _run(self) -> None:
        backoff, seldom = Backoff(RECONNECT_SECONDS, RECONNECT_SECONDS_MAX), Seldom(logger)

        def worked() -> None:
            backoff.worked()
            seldom.over("the log's notifications come again")

        while True:
            try:
                await self._listen(worked)
            except DATABASE_FAILED as error:
                seldom.warn(f"the log's notifications are interrupted: {str(error) or type(error).__name__}")
            await asyncio.sleep(backoff.failed())

    async def _listen(self, worked: Callable[[], None]) -> None:
        connection = await self._connect()
        try:
            await connection.add_listener(CHANNEL, lambda _connection, _pid, _channel, head: self._moved(int(str(head))))
            while True:
                head = await connection.fetchval("SELECT position FROM log_head", timeout=QUERY_SECONDS_MAX)
                self._moved(head)
                worked()
                await asyncio.sleep(WATCH_SECONDS_MAX)
        finally:
            connection.terminate()
