"""Live updates: the log as server-sent events, from any position on, without a gap or a repetition.

The id of each message is the event's position, so a client that reconnects with `Last-Event-ID` goes on exactly where it was.
All clients of a process share one watch of the log and its newest events; each goes on at its own pace, and nothing is queued for
it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

from tenuto.kernel.eventlog import EventLog, EventPage, LogUnavailable
from tenuto.kernel.head_watch import RETRY_SECONDS_MAX, HeadWatch
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tenuto.services.gateway.log.handling.recent_events import RecentEvents

KEEPALIVE_SECONDS = 15.0
"""Interval of keep-alive messages while there are no events: they find dead clients, and keep proxies from closing the
connection."""
CLIENTS_MAX = 500
"""Most streams; each holds a connection and a page of events while it reads."""
CLIENTS_PER_USER_MAX = 50
"""Most streams of one user, who has a page and some programs open: no user takes the room of all."""
PAUSE_SECONDS_PER_CLIENT = 0.0002
"""Pause after waking all streams, for each of them: twice as long as waking takes. So 500 streams are woken ten times a second at
most, and one at once."""


async def as_they_are(events: Sequence[Event]) -> Sequence[Event]:
    return events


class TooManyClients(Exception):
    """`str(error)` is one sentence for the user."""


class Tail:
    """Use as an async context manager around the server's life."""

    def __init__(self, log: EventLog) -> None:
        self._watch = HeadWatch(log)
        self._recent = RecentEvents(log)
        self._head = 0
        """Position up to which streams are told."""
        self._closing = False
        self._pulse = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._clients: Counter[str] = Counter()

    async def __aenter__(self) -> Tail:
        await self._watch.__aenter__()
        self._beating = asyncio.create_task(self._beat(), name="tail")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await stop_task(self._beating)
        await self._watch.__aexit__()

    @property
    def clients(self) -> int:
        """Number of streams."""
        return self._clients.total()

    def close(self) -> None:
        """Ends all streams, so that the server can stop; clients come back with their last id."""
        self._closing = True
        self._wake()

    def rights_changed(self) -> None:
        """Each stream asks again whether it is allowed."""
        self._wake()

    async def _beat(self) -> None:
        while True:
            await self._watch.wait_beyond(self._head)
            self._head = self._watch.head
            self._wake()
            await asyncio.sleep(self._clients.total() * PAUSE_SECONDS_PER_CLIENT)

    def _wake(self) -> None:
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    @contextlib.contextmanager
    def room(self, user: str) -> Iterator[None]:
        """Holds a place for one stream of this user. Raises TooManyClients."""
        if self._clients[user] >= CLIENTS_PER_USER_MAX:
            raise TooManyClients(f"You follow the events {CLIENTS_PER_USER_MAX} times already; close some, or try again later.")
        if self._clients.total() >= CLIENTS_MAX:
            raise TooManyClients("Too many clients follow the events; close some, or try again later.")
        self._clients[user] += 1
        try:
            yield
        finally:
            self._clients[user] -= 1
            if not self._clients[user]:
                del self._clients[user]

    async def messages(
        self,
        after: int,
        correlation_id: str | None = None,
        allowed: Callable[[], bool] = lambda: True,
        judge: Callable[[Sequence[Event]], Awaitable[Sequence[Event]]] = as_they_are,
    ) -> AsyncIterator[bytes]:
        """Server-sent events until the client leaves, the server stops, or the client is no longer `allowed`: this is checked
        before anything is sent, and whenever something is recorded, such as the end of a user. `judge` says which events it may
        see."""
        yield b"retry: 1000\n\n"
        now = asyncio.get_running_loop().time
        said = now()
        while not self._closing and allowed():
            if now() - said >= KEEPALIVE_SECONDS:  # also while all events are filtered out, or the database is unreachable
                # A message without data only moves the client's last id (and nothing else, by the standard).
                yield b": keep-alive\nid: %d\n\n" % after
                said = now()
            # What the filter leaves out up to the head is passed too.
            head = max(self._head, after)
            try:
                # A client may name any position: nothing is read for one beyond the log's end.
                events = await self._recent.behind(after, head, correlation_id) if after < self._head else EventPage((), False)
                seen = await judge(events)
            except LogUnavailable:
                await self._wait(RETRY_SECONDS_MAX)
                continue
            if seen:
                yield b"".join(map(self._recent.message, seen))
                said = now()
            if events.more:
                after = events[-1].position
                continue
            after = head
            if self._head <= after:
                await self._wait(said + KEEPALIVE_SECONDS - now())

    async def _wait(self, seconds: float) -> None:
        """Waits until something was recorded, rights have changed, the server stops, or the time is over."""
        if self._closing:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._pulse.wait()
