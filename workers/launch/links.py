"""Connections between the supervisors of a gang: each to that of rank 0.

Both sides send something at least once a second, so a cut link shows as silence within `distributed.link_seconds_max`, long
before TCP or the communication library would report it. A process of its own does this (`keeper`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tenuto.workers.launch.keeper import HELLO_BYTES_MAX, LOST, fork_keeper
from tenuto.workers.launch.layout import RENDEZVOUS_FILE, GangPart
from tenuto.workers.launch.messages import MESSAGE_BYTES_MAX, Message, decode, encode

RENDEZVOUS_SECONDS_MAX = 300.0
"""Longest wait for rank 0's agent to start its part, and for the launcher to send its address; that agent may have to fetch
the model directory first."""
DIAL_SECONDS_MAX = 30.0
"""Longest wait for a connection, and for the answer on it: on a busy machine the other side may take seconds."""
CLOSE_SECONDS_MAX = 2.0
"""Longest wait for the last messages to be sent."""
POLL_SECONDS = 0.05


class LinkLost(Protocol):
    def __call__(self, sentence: str, *, silent: bool) -> None: ...


def dial(part: GangPart) -> socket.socket:
    """Waits for the address of rank 0's supervisor, and connects. Raises OSError."""
    path, deadline = Path(part.directory) / RENDEZVOUS_FILE, time.monotonic() + RENDEZVOUS_SECONDS_MAX
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 on agent {part.agents[0][0]} has not reported its address")
        time.sleep(POLL_SECONDS)
    where = path.read_text()
    host, _, port = where.replace("[", "").replace("]", "").rpartition(":")
    deadline = time.monotonic() + DIAL_SECONDS_MAX
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=DIAL_SECONDS_MAX, source_address=(part.address, 0))
        except OSError as error:
            if time.monotonic() > deadline:
                raise OSError(_unreachable(part, where, error)) from error
            time.sleep(POLL_SECONDS)


def _unreachable(part: GangPart, where: str, error: OSError) -> str:
    leader = part.agents[0][0]
    if part.network:
        how = f"over the Docker network {part.network}, which must connect the containers of both (TENUTO_DOCKER_GANG_NETWORK)"
    else:
        how = "but nodes must reach each other on all ports"
    return f"agent {leader} cannot be reached at {where} from {part.address} on agent {part.agent_id} ({error}), {how}"


def greet(part: GangPart, connection: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
    """Identifies this part; returns the address of rank 0's store. Raises OSError, ValueError."""
    hello = {"op": "hello", "allocation_id": part.allocation_id, "agent_index": part.agent_index, "secret": part.secret}
    connection.sendall(encode(hello))
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = connection.recv(1)  # what follows the line is for who reads on
        if not byte:
            raise OSError("rank 0's supervisor refused the connection")
        line += byte
        if len(line) > HELLO_BYTES_MAX:
            raise ValueError("another program answers at the address of rank 0's supervisor")
    welcome = decode(bytes(line))
    try:
        return connection, (str(welcome["host"]), int(welcome["port"]))
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"the answer of rank 0's supervisor cannot be read: {welcome}") from error


class Links:
    """Links of one supervisor. Call `serve` or `connect` before anything else is started, then `run`."""

    def __init__(self, part: GangPart, received: Callable[[Message], None], lost: LinkLost) -> None:
        self._part, self._received, self._lost = part, received, lost
        self._keeper: tuple[int, socket.socket] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._early = bytearray()
        """Messages sent before `run` had begun."""
        self._closing = False

    def serve(self, listening: socket.socket, secret: str, master: tuple[str, int], close: list[socket.socket]) -> socket.socket:
        """Takes over `listening`. Returns a socket that ranks must not inherit, like those in `close`. Raises OSError."""
        self._keeper = fork_keeper(self._part, close, listening=listening, secret=secret, master=master)
        listening.close()
        return self._keeper[1]

    def connect(self, connection: socket.socket) -> socket.socket:
        """Like `serve`, on agents without rank 0."""
        self._keeper = fork_keeper(self._part, [], up=connection)
        connection.close()
        return self._keeper[1]

    async def run(self) -> None:
        if self._keeper is None:
            return
        reader, self._writer = await asyncio.open_unix_connection(sock=self._keeper[1], limit=2 * MESSAGE_BYTES_MAX)
        self._writer.write(bytes(self._early))
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                message = decode(line)
                if message["op"] == LOST:
                    self._lost(message["sentence"], silent=message["silent"])
                else:
                    self._received(message)
        if not self._closing:
            self._lost(
                f"agent {self._part.agent_id} has lost the process that keeps the connections to other agents", silent=True
            )

    def send_up(self, message: Message) -> None:
        if not self._part.leads:
            self._send(message)

    def send_down(self, message: Message) -> None:
        if self._part.leads:
            self._send(message)

    def _send(self, message: Message) -> None:
        if self._writer is None:
            self._early += encode(message)
        elif not self._writer.is_closing():
            self._writer.write(encode(message))

    async def close(self) -> None:
        """Closes once all messages are sent."""
        self._closing = True
        if self._keeper is None:
            return
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                if self._writer is not None:
                    await self._writer.drain()
                    self._writer.write_eof()
                await asyncio.to_thread(os.waitpid, self._keeper[0], 0)
                return
        with contextlib.suppress(OSError):
            os.kill(self._keeper[0], signal.SIGKILL)
