"""Reads files and texts of users in processes that may be killed (`reading.py`), off the event loop, a few at a time, users in
turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.schemas.config.layers import Layer, Value
from tenuto.services.gateway.http.fair_queue import Turns
from tenuto.services.gateway.http.refusals import RequestRefused
from tenuto.services.gateway.reader.archives import ContextRefused
from tenuto.services.gateway.reader.changes import CodeChange
from tenuto.services.gateway.reader.context_files import NoContext
from tenuto.services.gateway.reader.reading import (
    ANSWER,
    ARCHIVE,
    ARCHIVE_REFUSED,
    CHANGES,
    CONFIG,
    CONFIG_REFUSED,
    DONE,
    FILE,
    FILES,
    GONE,
    HEADER,
    LAYERED,
    PART,
)

logger = logging.getLogger(__name__)

ARCHIVES_AT_ONCE = 2
"""Most archives that are read (or compared) at once: never two of one user, so that a slow one holds up only its sender."""
CONFIGS_AT_ONCE = 2
"""Most configurations that are read at once; they have places of their own, as each takes milliseconds and an archive may take a
minute."""
WAITING_MAX = 64
"""Most questions under way or waiting; beyond it senders are asked to come again."""
WAITING_PER_USER_MAX = 8
"""Same limit for one user, so that none fills the queue alone."""
CONFIG_SECONDS_MAX = 10.0
"""Longest reading of a configuration, which takes milliseconds unless the machine is crowded."""
ARCHIVE_SECONDS_MAX = 60.0
"""Longest reading of an archive; the largest takes some seconds."""
CHANGES_SECONDS_MAX = 20.0
SAFETY_SECONDS = 2.0
"""Time past its limit after which a process that was not killed ends itself."""
ANSWER_BYTES_MAX = 64 << 20
KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "HOME")
"""Variables that the processes get; others may hold passwords, which a reader of strangers' files must not have."""


class ReaderBusy(RequestRefused):
    """Too many questions wait to be read."""

    code = "too_many"

    def __init__(self) -> None:
        super().__init__("Too many submissions wait to be read; send this one again in a few seconds.")


class ReadingFailed(Exception):
    """Reading took too long or too much memory, or the file is of another kind. `str(error)` is the reason, as the end of a
    sentence."""


class ConfigDraft(NamedTuple):
    """Configuration that may still be merged with others."""

    config: ExperimentConfig | None
    """The complete configuration; None: it is refused unless merged with others."""
    template: str | None = None
    workspace: str = ""
    """Workspace that it names; empty: none."""
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    """Sentences on values that YAML 1.1 reads otherwise."""


class Merged(NamedTuple):
    config: ExperimentConfig
    paths: Sequence[tuple[int, Sequence[str]]]
    """Values by layer: how many it gave, and the paths of the first of them."""
    values: Sequence[Value]


CONFIGS = (CONFIG, LAYERED, PART)


class UserFileReader:
    """Reader of users' files and texts. Call `stop` at the end. Processes start on first use, and stay."""

    def __init__(self) -> None:
        self._idle: list[Process] = []
        self._configs = Turns(of_one_user=1, at_once=CONFIGS_AT_ONCE)
        self._archives = Turns(of_one_user=1, at_once=ARCHIVES_AT_ONCE)
        self._waiting: Counter[str] = Counter()

    async def config(self, text: bytes, user: str) -> ConfigDraft:
        """Configuration read without layers under it. Raises ConfigError for a text that no layers could complete, and
        ReaderBusy."""
        kind, body = await self._config(CONFIG, text, user)
        if kind == CONFIG_REFUSED:
            told = json.loads(body)
            if "named" not in told:
                raise ConfigError(_problems(told))
            return ConfigDraft(None, problems=_problems(told), **told["named"])
        named, _, config = body.partition(b"\n")
        return ConfigDraft(ExperimentConfig.from_json(config), **json.loads(named))

    async def layered(self, text: bytes, layers: Sequence[Layer], said: Sequence[str] | None, user: str) -> Merged:
        """Configuration merged with the layers under it; see `reading._layered`. Raises ConfigError and ReaderBusy."""
        question = {"text": text.decode("latin-1"), "layers": [vars(item) for item in layers], "said": said}
        kind, body = await self._config(LAYERED, json.dumps(question).encode(), user)
        told = json.loads(body)
        if kind == CONFIG_REFUSED:
            raise ConfigError(_problems(told))
        config = ExperimentConfig.from_json(json.dumps(told["config"]))
        return Merged(config, told["paths"], [Value(*item) for item in told["values"]])

    async def part(self, text: bytes, user: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        """A part of a configuration, as plain data, and sentences on values that YAML 1.1 reads otherwise. Raises ConfigError and
        ReaderBusy."""
        kind, body = await self._config(PART, text, user)
        told = json.loads(body)
        if kind == CONFIG_REFUSED:
            raise ConfigError(_problems(told))
        document, notes = told
        return document, tuple(notes)

    async def _config(self, kind: bytes, body: bytes, user: str) -> tuple[bytes, bytes]:
        try:
            return await self._ask(kind, body, CONFIG_SECONDS_MAX, user)
        except ReadingFailed as error:
            raise ConfigError([Problem("", f"the configuration cannot be read: {error}")]) from error

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

    async def files(self, archive: Path, user: str) -> dict[str, Any]:
        """Files of a model directory, see `context_files.listed`. Raises NoContext and ReaderBusy."""
        found: dict[str, Any] = await self._look(FILES, os.fsencode(archive), user)
        return found

    async def file(self, archive: Path, path: str, user: str) -> dict[str, Any] | None:
        """One of them, see `context_files.content`. Raises NoContext and ReaderBusy."""
        found: dict[str, Any] | None = await self._look(FILE, json.dumps([str(archive), path]).encode(), user)
        return found

    async def _look(self, kind: bytes, body: bytes, user: str) -> Any:
        try:
            answer, found = await self._ask(kind, body, CHANGES_SECONDS_MAX, user)
        except ReadingFailed as error:
            raise NoContext(str(error)) from error
        if answer == GONE:
            raise NoContext(found.decode("utf-8", "replace"))
        return json.loads(found)

    async def stop(self) -> None:
        for process in self._idle:
            await _kill(process)
        self._idle.clear()

    async def _ask(self, kind: bytes, body: bytes, seconds_max: float, user: str) -> tuple[bytes, bytes]:
        if self._waiting.total() >= WAITING_MAX or self._waiting[user] >= WAITING_PER_USER_MAX:
            raise ReaderBusy
        self._waiting[user] += 1
        try:
            async with (self._configs if kind in CONFIGS else self._archives).turn(user):
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
        if answer not in (DONE, CONFIG_REFUSED, ARCHIVE_REFUSED, GONE):
            raise ReadingFailed(found.decode("utf-8", "replace"))
        return answer, found


def _problems(told: Mapping[str, Any]) -> list[Problem]:
    return [Problem(*item) for item in told["problems"]]


async def _started() -> Process:
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    module = "tenuto.services.gateway.reader.reading"
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
