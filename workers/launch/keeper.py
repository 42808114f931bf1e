"""The link keeper: a process that keeps a supervisor's connections to the other supervisors of its gang, and does nothing else.

A supervisor may be busy for seconds: it loads a library to open a store, or waits for a processor beside its ranks. So heartbeats
are sent and received here, in a process that is forked before anything else begins and is scheduled quickly, because it hardly
ever computes. Messages between supervisors pass through it unchanged. It ends with its supervisor.

Silence is measured on a clock that stops while this process is stopped (`ObserverClock`), and only after all received data is
read.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tenuto.workers.launch.layout import GangPart
from tenuto.workers.launch.messages import MESSAGE_BYTES_MAX, Message, decode, encode
from tenuto.workers.launch.process_clock import ObserverClock

BEAT_SECONDS = 1.0
LOOP_SECONDS = 0.25
"""Longest pause between two rounds of this process."""
LATE_SECONDS = 2 * LOOP_SECONDS
"""Time between two rounds beyond which the delay is this process's own lag."""
OUTBOX_BYTES_MAX = 64 << 20
"""Most unsent bytes for one receiver. Messages are positions and sentences, some kilobytes a second: a receiver with this
backlog has been stopped for hours."""
STRANGERS_MAX = 64
"""Most connections that have not identified themselves yet; a further one replaces the oldest, because an agent identifies
itself at once."""
HELLO_BYTES_MAX = 1024
"""Most bytes of an identification: gang, part and secret take a hundred."""
LOST, BEAT = "lost", "beat"
"""Messages of this process: to its supervisor, and to those of other agents."""


@dataclass
class _End:
    """One connection, with the bytes that were received and those still to be sent."""

    connection: socket.socket
    index: int | None
    """Index of the agent at the other end. None: it has not identified itself, or it is the supervisor of this process."""
    heard: float = 0.0
    """Time of the last received data, on the observer's clock (of an unidentified connection: when it connected); below, its
    lag by then, and the time of day."""
    lag: float = 0.0
    at: float = 0.0
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)
    lost: bool = False


class LinkKeeper:
    def __init__(
        self,
        part: GangPart,
        supervisor: socket.socket,
        *,
        listening: socket.socket | None = None,
        secret: str = "",
        master: tuple[str, int] = ("", 0),
        up: socket.socket | None = None,
    ) -> None:
        """`listening`, `secret`, `master`: for rank 0's side; `up`: the connection to it, on other agents."""
        self._part, self._listening, self._secret, self._master = part, listening, secret, master
        self._clock = ObserverClock(LATE_SECONDS, time.monotonic())
        self._selector = selectors.DefaultSelector()
        self._ends: dict[int, _End] = {}
        """Connections of other agents and unidentified ones, by descriptor."""
        self._beat_due = time.monotonic()
        self._supervisor = self._add(supervisor, None)
        if listening is not None:
            listening.setblocking(False)
            self._selector.register(listening, selectors.EVENT_READ, None)
        if up is not None:
            self._ends[up.fileno()] = self._add(up, 0)

    def run(self) -> None:
        """Runs until the supervisor closes its end; then sends its last messages."""
        while not self._supervisor.lost:
            self._turn(LOOP_SECONDS)
            self._judge()
            if time.monotonic() >= self._beat_due:
                self._beat_due = time.monotonic() + BEAT_SECONDS
                self._broadcast(encode({"op": BEAT}))
        deadline = time.monotonic() + BEAT_SECONDS
        while any(end.outbox for end in self._ends.values()) and time.monotonic() < deadline:
            self._turn(LOOP_SECONDS)

    def _turn(self, seconds: float) -> None:
        ready = self._selector.select(seconds)
        # The clock ticks before the data is read: what arrived during a stop of this process counts as heard now.
        self._clock.tick(time.monotonic())
        for key, mask in ready:
            end: _End | None = key.data
            if end is None:
                self._accept()
                continue
            if mask & selectors.EVENT_WRITE:
                self._flush(end)
            if mask & selectors.EVENT_READ:
                self._read(end)

    def _add(self, connection: socket.socket, index: int | None) -> _End:
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = _End(connection, index)
        self._note(end)
        self._selector.register(connection, selectors.EVENT_READ, end)
        return end

    def _note(self, end: _End) -> None:
        end.heard, end.lag, end.at = self._clock.seconds, self._clock.lag_seconds, time.time()

    def _accept(self) -> None:
        assert self._listening is not None
        with contextlib.suppress(OSError):
            connection, _ = self._listening.accept()
            strangers = [end for end in self._ends.values() if end.index is None]
            if len(strangers) >= STRANGERS_MAX:
                self._gone(min(strangers, key=lambda end: end.heard))
            self._ends[connection.fileno()] = self._add(connection, None)

    def _read(self, end: _End) -> None:
        try:
            piece = end.connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._gone(end)
            return
        if end.index is not None:
            self._note(end)
        end.inbox += piece
        if end is self._supervisor:
            self._pass_on(end)
            return
        try:
            while (length := end.inbox.find(b"\n") + 1) > 0:
                line = bytes(end.inbox[:length])
                del end.inbox[:length]
                self._receive(end, line)
            if len(end.inbox) > _bytes_max(end):
                raise ValueError("a message is too long")
        except Exception:  # whatever came, also from a stranger: it costs its own connection only
            self._gone(end)

    def _pass_on(self, end: _End) -> None:
        """Passes the supervisor's messages to all, line by line."""
        # Only whole lines: a half line, if the supervisor ends now, would make the next message unreadable.
        length = end.inbox.rfind(b"\n") + 1
        data = bytes(end.inbox[:length])
        del end.inbox[:length]
        if data:
            self._broadcast(data)

    def _receive(self, end: _End, line: bytes) -> None:
        """Handles a line. Raises the error of a malformed message."""
        if len(line) > _bytes_max(end):
            raise ValueError("a message is too long")
        message = decode(line)
        if end.index is None:
            self._welcome(end, message)
        elif message["op"] not in (BEAT, LOST):
            self._send(self._supervisor, line)

    def _welcome(self, end: _End, hello: Message) -> None:
        """Identifies a connection. Any process may connect, but only parts of this very gang are accepted. Raises as
        `_receive`."""
        # Compared first, in constant time, so that a stranger learns nothing about the gang.
        if not secrets.compare_digest(str(hello["secret"]).encode(), self._secret.encode()):
            raise ValueError("it does not know the secret")
        if hello["allocation_id"] != self._part.allocation_id:
            raise ValueError("not of this gang")
        index = int(hello["agent_index"])
        if not 0 < index < len(self._part.agents) or any(other.index == index for other in self._ends.values()):
            raise ValueError("there is no such part, or it is here already")
        end.index = index
        self._note(end)
        self._send(end, encode({"op": "welcome", "host": self._master[0], "port": self._master[1]}))

    def _broadcast(self, data: bytes) -> None:
        for end in list(self._ends.values()):
            if end.index is not None:
                self._send(end, data)

    def _send(self, end: _End, data: bytes) -> None:
        end.outbox += data
        self._flush(end)
        if len(end.outbox) > OUTBOX_BYTES_MAX:
            self._gone(end)

    def _flush(self, end: _End) -> None:
        with contextlib.suppress(BlockingIOError, OSError):  # an end that is gone shows when it is read
            del end.outbox[: end.connection.send(end.outbox)]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if end.outbox else 0)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.modify(end.connection, wanted, end)

    def _judge(self) -> None:
        for end in list(self._ends.values()):
            silence = self._clock.seconds - end.heard
            if silence <= self._part.link_seconds_max or end.lost:
                continue
            if end.index is None:
                self._gone(end)
                continue
            # The link is lost for the gang, but stays open: a last message may still arrive on it.
            end.lost = True  # what is still to be said may get there
            self._tell_lost(self._silent(end, silence), silent=True)

    def _silent(self, end: _End, silence: float) -> str:
        assert end.index is not None
        since = datetime.fromtimestamp(end.at, UTC).strftime("%H:%M:%S")
        lag = self._clock.lag_seconds - end.lag
        own = f"agent {self._part.agent_id} itself was stopped for {lag:.1f} s meanwhile, which are not counted"
        return (
            f"agent {self._part.agents[end.index][0]} could not be reached by agent {self._part.agent_id} over the network for "
            f"{silence:.0f} s: nothing came since {since} UTC ({own if lag >= 0.1 else 'this side was not stopped meanwhile'})"
        )

    def _gone(self, end: _End) -> None:
        if end is self._supervisor:
            end.lost = True
            self._selector.unregister(end.connection)
            return
        if self._ends.pop(end.connection.fileno(), None) is None:
            return
        self._selector.unregister(end.connection)
        end.connection.close()
        if end.index is not None and not end.lost:
            self._tell_lost(f"the ranks on agent {self._part.agents[end.index][0]} have gone", silent=False)

    def _tell_lost(self, sentence: str, *, silent: bool) -> None:
        self._send(self._supervisor, encode({"op": LOST, "sentence": sentence, "silent": silent}))


def _bytes_max(end: _End) -> int:
    return HELLO_BYTES_MAX if end.index is None else MESSAGE_BYTES_MAX


def fork_keeper(
    part: GangPart,
    close: list[socket.socket],
    *,
    listening: socket.socket | None = None,
    secret: str = "",
    master: tuple[str, int] = ("", 0),
    up: socket.socket | None = None,
) -> tuple[int, socket.socket]:
    """Process id of the keeper, and the supervisor's end of the connection to it. `close`: the supervisor's other sockets.
    Raises OSError."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid != 0:
        theirs.close()
        return pid, ours
    code = 1
    try:
        for other in (ours, *close):
            other.close()
        LinkKeeper(part, theirs, listening=listening, secret=secret, master=master, up=up).run()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
