"""The newest events of the log with their messages, read and encoded once for all streams. Otherwise each stream would read the
log at each move of its head: 500 queries for one event."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from operator import attrgetter

from tenuto.kernel.eventlog import EventLog, EventPage
from tenuto.schemas.envelope import Event
from tenuto.services.gateway.read_models.explain import encode_told

PAGE_EVENTS = 500
PAGE_BYTES = 1 << 20
"""Most bytes of a page: four times as much as a page of usual events. One user may have a page for each stream in memory at
once."""
KEPT_EVENTS_MAX = 2_000
KEPT_BYTES_MAX = 8 << 20
"""Most bytes of payloads kept. A stream that is further behind reads the log itself until it has caught up."""
_position = attrgetter("position")


class RecentEvents:
    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._events: list[Event] = []
        self._first = self._last = 0
        """All events behind the first position are kept, up to the last one."""
        self._bytes = 0
        self._messages: dict[int, bytes] = {}
        self._reading = asyncio.Lock()

    async def behind(self, after: int, upto: int, correlation_id: str | None) -> EventPage:
        """A page of events of the log. Raises LogUnavailable."""
        if upto > self._last:
            await self._extend(upto)
        if after < self._first:
            return await self._log.read(after, PAGE_EVENTS, upto=upto, correlation_id=correlation_id, bytes_max=PAGE_BYTES)
        found: list[Event] = []
        size_bytes = 0
        for index in range(bisect_right(self._events, after, key=_position), len(self._events)):
            event = self._events[index]
            if event.position > upto:
                break
            if correlation_id is not None and event.correlation_id != correlation_id:
                continue
            if len(found) == PAGE_EVENTS or size_bytes >= PAGE_BYTES:
                return EventPage(found, True)
            found.append(event)
            size_bytes += len(event.payload)
        return EventPage(found, False)

    def message(self, event: Event) -> bytes:
        """Event in the form in which it is sent."""
        made = self._messages.get(event.position)
        if made is None:
            # Canonical JSON has no line breaks outside of strings, and in strings they are escaped: one data line is enough.
            made = b"id: %d\nevent: %b\ndata: %b\n\n" % (event.position, event.type.encode(), encode_told(event))
            if self._first < event.position <= self._last:
                self._messages[event.position] = made
        return made

    async def _extend(self, upto: int) -> None:
        """Raises LogUnavailable."""
        async with self._reading:  # those who waited find what the first one read
            if upto - self._last > KEPT_EVENTS_MAX:
                self._events, self._messages, self._bytes = [], {}, 0
                self._first = self._last = max(upto - PAGE_EVENTS, 0)
            while self._last < upto:
                page = await self._log.read(self._last, PAGE_EVENTS, upto=upto, bytes_max=PAGE_BYTES)
                self._events += page
                self._bytes += sum(len(event.payload) for event in page)
                self._last = page[-1].position if page.more else upto
                self._trim()

    def _trim(self) -> None:
        count = max(len(self._events) - KEPT_EVENTS_MAX, 0)
        left = self._bytes - sum(len(event.payload) for event in self._events[:count])
        while left > KEPT_BYTES_MAX:
            left -= len(self._events[count].payload)
            count += 1
        if count:
            for event in self._events[:count]:
                self._messages.pop(event.position, None)
            self._first, self._bytes = self._events[count - 1].position, left
            del self._events[:count]
