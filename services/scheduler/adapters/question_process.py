"""A process that answers questions, one at a time, over its standard input and output. Long answers thus neither delay decisions
nor take the memory of the process that decides.

A message is its length in 4 bytes, and its bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable

from tenuto.kernel.settings import Settings

MESSAGE_BYTES_MAX = 7 << 20
"""Longest message; less than NATS takes."""
MEMORY_BYTES_MAX = 4 << 30
"""Most address space of the process; libraries map far more than they use. A process that wants more ends, and another one is
started."""
NICENESS = 10
"""Niceness of the process: decisions go before questions."""
COLLECTED = (50_000, 1_000, 1_000)
"""States have no cycles: the collector looks at young objects, and almost never at the hundreds of thousands that are kept, which
took a quarter of the time."""


class ChildEnded(Exception):
    """The process ended."""


class ChildLate(ChildEnded):
    """The process did not answer in time, and was killed."""


class QuestionProcess:
    """One process of a module. Started by the first question, and again when it has ended."""

    def __init__(self, module: str, settings: Settings) -> None:
        self._command = (sys.executable, "-m", module)
        self._environment = os.environ | {"TENUTO_DATABASE_URL": settings.database_url}
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def ask(self, question: bytes, seconds: float) -> bytes:
        """Answer to the question. Raises ChildEnded, and ChildLate after `seconds`."""
        async with self._turn:
            fresh = self._process is None or self._process.returncode is not None
            try:
                return await self._asked(question, seconds)
            except ChildEnded as error:
                if fresh or isinstance(error, ChildLate):
                    raise
                # The process may have ended just then because it was idle for long.
                return await self._asked(question, seconds)

    async def _asked(self, question: bytes, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                process = await self._started()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(len(question).to_bytes(4, "big") + question)
                await process.stdin.drain()
                return await read(process.stdout)
        except BaseException as error:
            await self._killed()  # a late answer would be taken for that to the next question
            if isinstance(error, TimeoutError):
                raise ChildLate from error
            if isinstance(error, (OSError, EOFError, ValueError)):
                raise ChildEnded from error
            raise

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=self._environment, start_new_session=True
            )
        return self._process

    async def _killed(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()

    async def stop(self) -> None:
        await self._killed()


async def read(stream: asyncio.StreamReader) -> bytes:
    """One message. Raises EOFError at the end, and ValueError for one that is too long."""
    length = int.from_bytes(await stream.readexactly(4), "big")
    if length > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {length} bytes")
    return await stream.readexactly(length)


async def serve(answer: Callable[[bytes], Awaitable[bytes]], idle_seconds: float) -> None:
    """Runs in the child process: answers questions until its input ends, or until none has come for `idle_seconds`."""
    os.nice(NICENESS)
    gc.freeze()
    gc.set_threshold(*COLLECTED)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MEMORY_BYTES_MAX if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    stream = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin)
    with contextlib.suppress(EOFError, TimeoutError):
        while True:
            async with asyncio.timeout(idle_seconds):
                question = await read(stream)
            found = await answer(question)
            sys.stdout.buffer.write(len(found).to_bytes(4, "big") + found)
            sys.stdout.buffer.flush()
