"""Reads of the log that survive any loss of it: the newest head, and the events behind a position."""

from __future__ import annotations

import asyncio
import logging

from tenuto.kernel.eventlog import EventLog, EventPage, LogUnavailable
from tenuto.kernel.tasks import stop_task

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
"""First wait after a failed read of the log; doubles up to RETRY_SECONDS_MAX, so that a restart is noticed soon and a long
outage costs nothing."""
RETRY_SECONDS_MAX = 2.0


class HeadWatch:
    """Newest known head of the log, and an event that is set when it moves."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.head = 0
        self.moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> HeadWatch:
        self._task = asyncio.create_task(self._watch(), name="head-watch")
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_task(self._task)

    async def _watch(self) -> None:
        while True:
            try:
                async for head in self._log.watch():
                    if head > self.head:
                        self.head = head
                        self.moved.set()
            except LogUnavailable as error:
                logger.warning("the log cannot be watched: %s", error)
            await asyncio.sleep(RETRY_SECONDS_MAX)

    async def wait_beyond(self, position: int) -> None:
        """Returns when the head is known to be beyond `position`."""
        while self.head <= position:
            self.moved.clear()
            await self.moved.wait()


async def read_patiently(log: EventLog, after: int, limit: int, upto: int | None = None) -> EventPage:
    """Reads the log; waits and tries again while it cannot be reached."""
    wait_seconds = RETRY_SECONDS
    while True:
        try:
            return await log.read(after, limit, upto=upto)
        except LogUnavailable as error:
            logger.warning("the log cannot be read, trying again in %.1f s: %s", wait_seconds, error)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(wait_seconds * 2, RETRY_SECONDS_MAX)
