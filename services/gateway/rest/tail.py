"""Live updates: the log as server-sent events, from any position on, without a gap or a repetition.

The id of each message is the event's position, so a client that reconnects with `Last-Event-ID` goes on exactly where it was.
All clients of a process share one watch of the log; each reads at its own pace and nothing is queued for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

from tenuto.kernel.eventlog import EventLog, LogUnavailable
from tenuto.kernel.head_watch import RETRY_SECONDS_MAX, HeadWatch
from tenuto.schemas.envelope import Event
from tenuto.services.gateway.explain import encode_told

PAGE_EVENTS = 500
PAGE_BYTES = 1 << 20
"""Four times as much as so many usual events have: one user may have CLIENTS_PER_USER_MAX pages in memory at once."""
KEEPALIVE_SECONDS = 15.0
"""Without events something is sent this often: it finds dead clients, and keeps proxies from closing the connection."""
CLIENTS_MAX = 500
"""Each holds a connection and a page of events while it reads."""
CLIENTS_PER_USER_MAX = 50
"""A user has a page and some programs open; nobody takes the room of all."""


class TooManyClients(Exception):
    """`str(error)` is one sentence for the user."""


class Tail:
    """Use as an async context manager around the server's life."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._watch = HeadWatch(log)
        self._closing = asyncio.Event()
        self._rights = asyncio.Event()
        self._clients: Counter[str] = Counter()

    async def __aenter__(self) -> Tail:
        await self._watch.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self._watch.__aexit__()

    def close(self) -> None:
        """Ends all streams, so that the server can stop; clients come back with their last id."""
        self._closing.set()

    def rights_changed(self) -> None:
        """Each stream asks again whether it is allowed."""
        self._rights.set()
        self._rights = asyncio.Event()

    @contextlib.contextmanager
    def room(self, user: str) -> Iterator[None]:
        """For one stream of this user. Raises TooManyClients."""
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
        self, after: int, correlation_id: str | None = None, allowed: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[bytes]:
        """Server-sent events until the client leaves, the server stops, or the client is not `allowed` any more: asked before
        anything is sent, and whenever something is recorded, as the end of a user is."""
        yield b"retry: 1000\n\n"
        now = asyncio.get_running_loop().time
        said = now()
        while not self._closing.is_set() and allowed():
            if now() - said >= KEEPALIVE_SECONDS:  # also while all that happens is filtered out, or the database is away
                # A message without data only moves the client's last id (and nothing else, by the standard).
                yield b": keep-alive\nid: %d\n\n" % after
                said = now()
            # What the filter leaves out up to the head is passed too.
            head = max(self._watch.head, after)
            try:
                events = await self._log.read(after, PAGE_EVENTS, upto=head, correlation_id=correlation_id, bytes_max=PAGE_BYTES)
            except LogUnavailable:
                await self._pause(RETRY_SECONDS_MAX)
                continue
            if events:
                yield b"".join(_message(event) for event in events)
                said = now()
            if events.more:
                after = events[-1].position
                continue
            after = head
            await self._wait_beyond(after, said + KEEPALIVE_SECONDS - now())

    async def _wait_beyond(self, position: int, seconds: float) -> None:
        """Waits until there are more events, the time is over, rights have changed, or the server stops."""
        moved = asyncio.ensure_future(self._watch.wait_beyond(position))
        closing = asyncio.ensure_future(self._closing.wait())
        rights = asyncio.ensure_future(self._rights.wait())
        try:
            await asyncio.wait({moved, closing, rights}, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
            closing.cancel()
            rights.cancel()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            pass


def _message(event: Event) -> bytes:
    # Canonical JSON has no line breaks outside of strings, and in strings they are escaped: one data line is enough.
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.position, event.type.encode(), encode_told(event))
