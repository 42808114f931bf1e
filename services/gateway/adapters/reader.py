"""Has what users send read by processes that may be killed (`reading.py`), off the event loop, a few at a time, users in turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.services.gateway.adapters.archives import ContextRefused
from tenuto.services.gateway.adapters.reading import (
    ANSWER,
    ARCHIVE,
    ARCHIVE_REFUSED,
    CHANGES,
    CONFIG,
    CONFIG_REFUSED,
    DONE,
    HEADER,
)
from tenuto.services.gateway.adapters.turns import Turns
from tenuto.services.gateway.policies.differences import CodeChange

logger = logging.getLogger(__name__)

ARCHIVES_AT_ONCE = 2
"""Archives that are read at the same time (or compared): never two of one user, so that a slow one holds up only its sender."""
CONFIGS_AT_ONCE = 2
"""Configurations: places of their own, as each takes milliseconds and an archive may take a minute."""
WAITING_MAX = 64
"""Questions under way or waiting; beyond it senders are asked to come again."""
WAITING_PER_USER_MAX = 8
"""... of one user: nobody fills the queue alone."""
CONFIG_SECONDS_MAX = 10.0
"""A configuration takes milliseconds; this is for a crowded machine."""
ARCHIVE_SECONDS_MAX = 60.0
"""An archive of the largest size takes some seconds."""
CHANGES_SECONDS_MAX = 20.0
SAFETY_SECONDS = 2.0
"""So much later a process ends itself, if nobody killed it."""
ANSWER_BYTES_MAX = 64 << 20
KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "HOME")
"""Passwords among the others are no business of a process that reads strangers' files."""


class ReaderBusy(Exception):
    """Too much waits to be read already."""


class ReadingFailed(Exception):
    """Reading took too long or too much memory, or the file is of another kind. `str(error)` is the reason, as the end of a
    sentence."""


class Reader:
    """Use `stop` at the end. Processes start when they are first needed, and stay."""

    def __init__(self) -> None:
        self._idle: list[Process] = []
        self._configs = Turns(of_one_user=1, at_once=CONFIGS_AT_ONCE)
        self._archives = Turns(of_one_user=1, at_once=ARCHIVES_AT_ONCE)
        self._waiting: Counter[str] = Counter()

    async def config(self, text: bytes, user: str) -> ExperimentConfig:
        """Raises ConfigError and ReaderBusy."""
        try:
            kind, body = await self._ask(CONFIG, text, CONFIG_SECONDS_MAX, user)
        except ReadingFailed as error:
            raise ConfigError([Problem("", f"the configuration cannot be read: {error}")]) from error
        if kind == CONFIG_REFUSED:
            raise ConfigError([Problem(*item) for item in json.loads(body)])
        return ExperimentConfig.from_json(body)

    async def archive(self, path: Path, user: str) -> frozenset[str]:
        """Names at the top of a packed model directory. Raises ContextRefused and ReaderBusy."""
        try:
            kind, body = await self._ask(ARCHIVE, os.fsencode(path), ARCHIVE_SECONDS_MAX, user)
        except ReadingFailed as error:
            raise ContextRefused(f"The part `context` cannot be read: {error}.") from error
        if kind == ARCHIVE_REFUSED:
            raise ContextRefused(*json.loads(body))
        return frozenset(json.loads(body))

    async def changes(self, archives: Sequence[Path], user: str) -> list[CodeChange] | None:
        """Differences between two model directories; None if they cannot be found. Raises ReaderBusy."""
        try:
            _, body = await self._ask(CHANGES, json.dumps([str(path) for path in archives]).encode(), CHANGES_SECONDS_MAX, user)
        except ReadingFailed as error:
            logger.warning("the files of two experiments could not be compared: %s", error)
            return None
        found = json.loads(body)
        return None if found is None else [CodeChange(**item | {"settings": tuple(item["settings"])}) for item in found]

    async def stop(self) -> None:
        for process in self._idle:
            await _kill(process)
        self._idle.clear()

    async def _ask(self, kind: bytes, body: bytes, seconds_max: float, user: str) -> tuple[bytes, bytes]:
        if self._waiting.total() >= WAITING_MAX or self._waiting[user] >= WAITING_PER_USER_MAX:
            raise ReaderBusy
        self._waiting[user] += 1
        try:
            async with (self._configs if kind == CONFIG else self._archives).turn(user):
                return await self._answered(kind, body, seconds_max)
        finally:
            self._waiting[user] -= 1
            if not self._waiting[user]:
                del self._waiting[user]

    async def _answered(self, kind: bytes, body: bytes, seconds_max: float) -> tuple[bytes, bytes]:
        self._idle = [process for process in self._idle if process.returncode is None]
        process = self._idle.pop() if self._idle else await _started()
        kept = False
        try:
            async with asyncio.timeout(seconds_max):
                answer, found = await _exchange(process, HEADER.pack(kind, seconds_max + SAFETY_SECONDS, len(body)) + body)
            kept = True
        except TimeoutError:
            raise ReadingFailed(f"it takes longer than {seconds_max:.0f} s") from None
        except (asyncio.IncompleteReadError, OSError, ValueError) as error:
            raise ReadingFailed("the process that read it was ended by it") from error
        finally:
            # After an unfinished exchange the pipe may hold the rest of an answer, so that process is not used again.
            if kept:
                self._idle.append(process)
            else:
                await _kill(process)
        if answer not in (DONE, CONFIG_REFUSED, ARCHIVE_REFUSED):
            raise ReadingFailed(found.decode("utf-8", "replace"))
        return answer, found


async def _started() -> Process:
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    module = "tenuto.services.gateway.adapters.reading"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=PIPE, stdout=PIPE, env=environment, start_new_session=True
    )


async def _exchange(process: Process, question: bytes) -> tuple[bytes, bytes]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(question)
    await process.stdin.drain()
    kind, length = ANSWER.unpack(await process.stdout.readexactly(ANSWER.size))
    if length > ANSWER_BYTES_MAX:
        raise ValueError("the answer is too long")
    return kind, await process.stdout.readexactly(length)


async def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
