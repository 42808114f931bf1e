"""Feeds: a service's source of the log, with every event, dense, in order, for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.head_watch import HeadWatch, read_patiently
from tenuto.kernel.stream_feed import StreamFeed
from tenuto.schemas.envelope import Event

__all__ = ["EventFeed", "LogFeed", "StreamFeed"]


class EventFeed(Protocol):
    def follow(self, after: int, batch_max: int) -> AsyncIterator[list[Event]]:
        """Batches of at most `batch_max` events: positions after + 1, after + 2, ... without a gap or a repetition."""
        ...


class LogFeed:
    """A feed from the log alone: reads, and waits for its notifications. For tests, and for projections without a bus."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def follow(self, after: int, batch_max: int) -> AsyncIterator[list[Event]]:
        async with HeadWatch(self._log) as watch:
            while True:
                batch = await read_patiently(self._log, after, batch_max)
                if batch:
                    after = batch[-1].position
                    yield batch
                if not batch.more:
                    await watch.wait_beyond(after)
