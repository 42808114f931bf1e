"""The newest events, read once for all rules of a process. A rule that is further behind reads its own pages meanwhile."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from typing import Any, NamedTuple

from tenuto.client import AsyncClient
from tenuto.client.messages import split_array

EVENTS_MAX = 2_000
"""Most events kept (and BYTES_MAX of them): a rule that is busy for a minute still finds those that came meanwhile."""
BYTES_MAX = 16 << 20
PAGE_EVENTS = 500
Told = dict[str, Any]


class EventWindow(NamedTuple):
    events: list[Told]
    upto: int
    """Position up to which there are no others."""


class Window:
    """Events with positions above `start` and up to `end`."""

    def __init__(self, client: AsyncClient, after: int) -> None:
        self._client = client
        self.start = self.end = after
        self._events: list[tuple[Told, int]] = []
        self._bytes = 0
        self._waking: list[asyncio.Event] = []

    def waking(self) -> asyncio.Event:
        """Event object of the caller, which is set whenever more has come."""
        event = asyncio.Event()
        self._waking.append(event)
        return event

    def add(self, told: Told, size_bytes: int) -> None:
        """Adds the next event; one that is not behind the window's end is known already."""
        if told["position"] <= self.end:
            return
        self.end = told["position"]
        self._events.append((told, size_bytes))
        self._bytes += size_bytes
        if len(self._events) > EVENTS_MAX or self._bytes > BYTES_MAX:
            gone = max(1, len(self._events) // 4)
            self.start = self._events[gone - 1][0]["position"]
            self._bytes -= sum(size for _, size in self._events[:gone])
            del self._events[:gone]
        for event in self._waking:
            event.set()

    async def after(self, position: int) -> EventWindow:
        """Events known behind a position; empty if there are none. Raises ClientError."""
        if position >= self.start:
            first = bisect_right(self._events, position, key=lambda item: int(item[0]["position"]))
            return EventWindow([told for told, _ in self._events[first : first + PAGE_EVENTS]], position)
        start = self.start
        events = await page(self._client, position, start)
        return EventWindow(events, position if events else start)


async def page(client: AsyncClient, after: int, upto: int | None = None, limit: int = PAGE_EVENTS) -> list[Told]:
    body, _ = await client.fetch("/events", after=after, limit=limit, upto=upto)
    return [json.loads(event) for event in split_array(body)]
