"""Archives of contexts for this node: in the directory that it shares with the gateway, or sent by the gateway over the bus."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, Protocol

from nats.aio.client import Client
from nats.errors import Error as NatsError

from tenuto.kernel.backoff import Backoff
from tenuto.kernel.private_files import private
from tenuto.schemas import subjects
from tenuto.schemas.contexts import HEADER_REFUSED, HEADER_SIZE, ContextRequest

logger = logging.getLogger(__name__)

ANSWER_SECONDS_MAX = 5.0
"""Longest wait for one piece, which takes milliseconds; then it is asked for again."""
SILENT_SECONDS_MAX = 30.0
"""Time without a piece after which the run is given back, and the trial goes on elsewhere or later."""
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.2, 2.0


class ContextUnavailable(Exception):
    """The archive cannot be had here, through no fault of the user's code."""


class Archives(Protocol):
    def of(
        self, context_hash: str, allocation_id: str, wanted: Callable[[], bool]
    ) -> contextlib.AbstractAsyncContextManager[Path]:
        """The archive, as long as the context manager is open; not verified yet. `wanted`: False once the run was killed.
        Raises ContextUnavailable."""


class SharedArchives:
    """Archives in the directory that gateway and agents share."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextlib.asynccontextmanager
    async def of(self, context_hash: str, allocation_id: str, wanted: Callable[[], bool]) -> AsyncIterator[Path]:
        yield self._directory / f"{context_hash}.tar.gz"


class SentArchives:
    """Archives that the gateway sends in pieces, for allocations of this agent."""

    def __init__(
        self, directory: Path, agent_id: str, bus: Callable[[], Client | None], token_of: Callable[[str], str], bytes_max: int
    ) -> None:
        """`directory`: for archives on their way. `bus`: None while the agent has not connected yet."""
        self._directory, self._bus, self._token_of, self._bytes_max = directory, bus, token_of, bytes_max
        self._subject = subjects.context(agent_id)

    @contextlib.asynccontextmanager
    async def of(self, context_hash: str, allocation_id: str, wanted: Callable[[], bool]) -> AsyncIterator[Path]:
        path = self._directory / f".{context_hash}.tar.gz.partial"
        try:
            try:
                with await asyncio.to_thread(_made, path) as file:
                    await self._receive(file, allocation_id, wanted)
            except OSError as error:
                raise ContextUnavailable(f"The model directory cannot be stored at {path}: {error}.") from error
            yield path
        finally:
            path.unlink(missing_ok=True)

    async def _receive(self, file: IO[bytes], allocation_id: str, wanted: Callable[[], bool]) -> None:
        loop, offset, size = asyncio.get_running_loop(), 0, None
        heard, backoff = loop.time(), Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        while size is None or offset < size:
            if not wanted():
                raise ContextUnavailable("The run was ended before its model directory had arrived.")
            found = await self._piece(allocation_id, offset)
            if isinstance(found, str):
                if loop.time() - heard > SILENT_SECONDS_MAX:
                    raise ContextUnavailable(f"The gateway does not send the model directory: {found}")
                await asyncio.sleep(backoff.failed())
                continue
            size, piece = found
            if size > self._bytes_max or len(piece) > size - offset:
                raise ContextUnavailable(
                    f"The model directory has {max(size, offset + len(piece))} bytes, and this agent takes {self._bytes_max}: "
                    "set TENUTO_CONTEXT_BYTES_MAX as for the gateway."
                )
            if not piece and offset < size:
                raise ContextUnavailable("The gateway sent less of the model directory than it said.")
            await asyncio.to_thread(file.write, piece)
            offset, heard = offset + len(piece), loop.time()
            backoff.worked()

    async def _piece(self, allocation_id: str, offset: int) -> tuple[int, bytes] | str:
        """Size of the whole and a piece of it, or why there is none."""
        bus, token = self._bus(), self._token_of(allocation_id)
        if bus is None or not bus.is_connected:
            return "the bus cannot be reached."
        request = ContextRequest(allocation_id=allocation_id, token=token, offset=offset)
        try:
            answer = await bus.request(self._subject, request.to_json(), timeout=ANSWER_SECONDS_MAX)
        except (NatsError, OSError) as error:
            return f"{str(error) or type(error).__name__}."
        headers = answer.headers or {}
        size = headers.get(HEADER_SIZE, "")
        if not (size.isascii() and size.isdecimal()):
            return headers.get(HEADER_REFUSED, "its answer cannot be read.")
        return int(size), bytes(answer.data)


def _made(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "wb", opener=private)
