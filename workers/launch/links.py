"""Connections between the supervisors of a gang: each to that of rank 0.

Both sides send something at least once a second, so a cut link shows as silence within `LINK_SECONDS_MAX`, long before TCP or the
communication library would say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tenuto.workers.launch.layout import RENDEZVOUS_FILE, GangPart
from tenuto.workers.launch.messages import MESSAGE_BYTES_MAX, Message, decode, encode

BEAT_SECONDS = 1.0
LINK_SECONDS_MAX = 5.0
"""Silence for so long is a cut link: five beats."""
RENDEZVOUS_SECONDS_MAX = 300.0
"""For rank 0's agent to start its part and for the launcher to tell where: it may have to fetch the model directory first."""
DIAL_SECONDS_MAX = 10.0
POLL_SECONDS = 0.05


class LinkLost(Protocol):
    def __call__(self, sentence: str, *, silent: bool) -> None: ...


def dial(part: GangPart) -> tuple[socket.socket, str]:
    """Waits until it is known where rank 0's supervisor listens, and connects. Raises OSError."""
    path, deadline = Path(part.directory) / RENDEZVOUS_FILE, time.monotonic() + RENDEZVOUS_SECONDS_MAX
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 on agent {part.agents[0][0]} has not said where it listens")
        time.sleep(POLL_SECONDS)
    where, _, secret = path.read_text().partition("/")
    host, _, port = where.rpartition(":")
    deadline = time.monotonic() + DIAL_SECONDS_MAX
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=DIAL_SECONDS_MAX, source_address=(part.address, 0)), secret
        except OSError as error:
            if time.monotonic() > deadline:
                raise OSError(f"agent {part.agents[0][0]} cannot be reached at {where}: {error}") from error
            time.sleep(POLL_SECONDS)


def greet(part: GangPart, connection: socket.socket, secret: str) -> tuple[socket.socket, tuple[str, int]]:
    """Returns where rank 0's store listens. Raises OSError, ValueError."""
    hello = {"op": "hello", "allocation_id": part.allocation_id, "agent_index": part.agent_index, "secret": secret}
    connection.sendall(encode(hello))
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = connection.recv(1)  # what follows the line is for who reads on
        if not byte:
            raise OSError("rank 0's supervisor refused the connection")
        line += byte
    welcome = decode(bytes(line))
    return connection, (welcome["host"], int(welcome["port"]))


class Links:
    def __init__(self, part: GangPart, received: Callable[[Message], None], lost: LinkLost) -> None:
        self._part, self._received, self._lost = part, received, lost
        self._listening: socket.socket | None = None
        self._secret, self._master = "", ("", 0)
        self._up: socket.socket | None = None
        self._writers: dict[int, asyncio.StreamWriter] = {}
        """By agent index."""
        self._closing = False

    def serve(self, listening: socket.socket, secret: str, master: tuple[str, int]) -> None:
        self._listening, self._secret, self._master = listening, secret, master

    def connect(self, connection: socket.socket) -> None:
        self._up = connection

    async def run(self) -> None:
        if self._listening is not None:
            server = await asyncio.start_server(self._accept, sock=self._listening, limit=MESSAGE_BYTES_MAX)
            async with server:
                await self._beat()
        elif self._up is not None:
            self._up.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=self._up, limit=MESSAGE_BYTES_MAX)
            self._writers[0] = writer
            await asyncio.gather(self._hear(0, reader), self._beat())

    def send_up(self, message: Message) -> None:
        if not self._part.leads:
            self._send(message)

    def send_down(self, message: Message) -> None:
        if self._part.leads:
            self._send(message)

    def _send(self, message: Message) -> None:
        for writer in self._writers.values():
            if not writer.is_closing():
                writer.write(encode(message))

    async def close(self) -> None:
        """What was sent is on its way."""
        self._closing = True
        for writer in self._writers.values():
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()

    async def _beat(self) -> None:
        while True:
            self._send({"op": "beat"})
            await asyncio.sleep(BEAT_SECONDS)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Any process may connect: only one of this very gang is let in."""
        try:
            async with asyncio.timeout(LINK_SECONDS_MAX):
                hello = decode(await reader.readline())
            fits = hello.get("allocation_id") == self._part.allocation_id
            if not fits or not secrets.compare_digest(str(hello.get("secret")), self._secret):
                raise ValueError("not of this gang")
        except (OSError, ValueError, TimeoutError):
            writer.close()
            return
        index = int(hello["agent_index"])
        writer.write(encode({"op": "welcome", "host": self._master[0], "port": self._master[1]}))
        self._writers[index] = writer
        await self._hear(index, reader)

    async def _hear(self, index: int, reader: asyncio.StreamReader) -> None:
        agent_id = self._part.agents[index][0]
        try:
            while True:
                async with asyncio.timeout(LINK_SECONDS_MAX):
                    line = await reader.readline()
                if not line:
                    break
                message = decode(line)
                if message["op"] != "beat":
                    self._received(message)
        except TimeoutError:
            if not self._closing:
                self._lost(
                    f"agent {agent_id} could not be reached by agent {self._part.agent_id} over the network for "
                    f"{LINK_SECONDS_MAX:.0f} s",
                    silent=True,
                )
            return
        except (OSError, ValueError):
            pass
        if not self._closing:
            self._lost(f"the ranks on agent {agent_id} have gone", silent=False)
