"""Connections of HTTP with bounds: how many there are, and how long one may take to say what it wants."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tenuto.kernel.connection_shares import IdleConnection, gives_way, holder

logger = logging.getLogger(__name__)

HEAD_SECONDS_MAX = 20.0
"""Longest time from a connection, or the first byte of a request on it, to the end of the request's headers."""
REST_SECONDS_MAX = 120.0
"""Longest time to send the rest of a body after its request was refused: the connection can then be used again."""
UNREAD_SECONDS = 60.0
"""Longest time in which a client must read all that waits for it (an answer is kept in memory until it is read) ..."""
READ_BYTES_MIN = 240 << 10
"""... or at least this many bytes of it, 4 KiB a second, as is asked of a client that sends; a slower one is cut off."""
CONNECTIONS_MAX = 900
"""Most connections, below the 1,024 open files that a process usually may have: the database, the bus and contexts need some."""
FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n"


class BoundedProtocol(H11Protocol):
    """A client that sends its headers byte by byte is cut off. Beyond `connections_max` a connection that waits for its client
    gives way to a new one, and where none does, the new one is turned away."""

    connections_max = CONNECTIONS_MAX
    head_seconds_max = HEAD_SECONDS_MAX
    _unread: asyncio.TimerHandle | None = None
    _deadline: asyncio.TimerHandle | None = None
    _waits_for = ""
    held: IdleConnection | None = None
    """Entry of this connection in the choice of the one that gives way. None: not connected yet."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.held = IdleConnection(holder(self.client[0]) if self.client else "", asked=False, since_seconds=self.loop.time())
        if self.admitted():
            self._watch()
        else:
            self.turn_away()

    def admitted(self) -> bool:
        """True if there is room for this connection, which is counted already."""
        if len(self.connections) <= self.connections_max:
            return True
        ours = [item for item in self.connections if isinstance(item, BoundedProtocol) and not item.transport.is_closing()]
        if len(ours) <= self.connections_max:  # what was closed is still among them for a moment
            return True
        waiting = [(item, item.held) for item in ours if item.held is not None and item.waits and item is not self]
        found = gives_way([held for _, held in waiting])
        if found is None:
            return False
        waiting[found][0].transport.abort()
        self.made_room()
        return True

    def made_room(self) -> None:
        """Called when another connection gave way to this one."""

    @property
    def waits(self) -> bool:
        """True if the server has nothing to do for it: no whole request came, or the last one was answered."""
        return self.cycle is None or self.cycle.response_complete

    def turn_away(self) -> None:
        logger.warning("a connection is turned away: there are %d already, all with requests", self.connections_max)
        self.transport.write(FULL)
        self.transport.close()

    def unreadable(self, message: str) -> tuple[str, bytes]:
        """Media type and body of the answer to what is no HTTP request."""
        return "text/plain", f"This is no HTTP request: {message.lower()}\n".encode()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect("", 0.0)
        self._forget_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.held is not None and not self.held.asked:
            self.held = replace(self.held, asked=True)
        self._watch()

    def pause_writing(self) -> None:
        """More waits to be read than the connection takes: nothing is added until most of it was."""
        super().pause_writing()
        self._look_again()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_unread()

    def _look_again(self) -> None:
        waiting_bytes = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self._judge_reading, waiting_bytes)

    def _judge_reading(self, waited_bytes: int) -> None:
        if waited_bytes - self.transport.get_write_buffer_size() >= READ_BYTES_MIN:
            self._look_again()
            return
        self._unread = None
        logger.info("a connection is cut: its client does not read the answer")
        self.transport.abort()

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch(self) -> None:
        state = self.conn.their_state
        answered = self.cycle is not None and self.cycle.response_complete
        if state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            self._expect("head", self.head_seconds_max)
        elif state is h11.SEND_BODY and answered:
            self._expect("rest", REST_SECONDS_MAX)
        else:
            self._expect("", 0.0)

    def _expect(self, what: str, seconds_max: float) -> None:
        """The time runs from the first call with the same `what`."""
        if what == self._waits_for:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds_max, self._late) if what else None
        self._waits_for = what

    def _late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answers 400, unless an answer has begun already; then closes the connection."""
        media_type, body = self.unreadable(msg)
        lines = ("HTTP/1.1 400 Bad Request", f"Content-Type: {media_type}", f"Content-Length: {len(body)}")
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body)
        self.transport.close()
