"""The agent's own directory and file: what shows that they are gone or damaged, and what to do then."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from pathlib import Path

from tenuto.kernel.backoff import Seldom

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between looks at the directory: how long an agent whose directory was removed takes work that it cannot do."""
DATABASE = "agent.sqlite"
LOCK = "agent.lock"

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOST = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
"""Not among them: a full disk (training goes on, and reports are tried again) and a file that is busy."""


def database_problem(error: BaseException, path: Path) -> str | None:
    """A sentence where the agent cannot go on with this file: what, why, what to do."""
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details of the extended code
    if code in _DAMAGED:
        return (
            f"{path} is damaged ({error}). It holds reports that were not recorded yet, which are lost with it; all else is on "
            f"record. Move it away to start the agent with an empty one: mv {path} {path}.damaged"
        )
    if code in _LOST:
        return f"{path} cannot be used ({error}): repair the disk or the permissions of {path.parent}, and start the agent again."
    return None


class Home:
    """Notices that the directory was removed or replaced. Files that are open go on, so nothing else would tell."""

    def __init__(self, directory: Path) -> None:
        """To be made when the files are there."""
        self._directory = directory
        self._lost = asyncio.Event()
        self._problem = ""
        self._seldom = Seldom(logger)
        self._known: dict[Path, tuple[int, int]] = {}
        """What each file was when it was first looked at."""
        self._gone()

    def failed(self, error: BaseException) -> None:
        """A call to the database failed so."""
        if not self._problem and (problem := database_problem(error, self._directory / DATABASE)) is not None:
            self._problem = problem
            self._lost.set()

    async def lost(self) -> str:
        """Returns when the agent cannot go on: why, and what to do."""
        while not self._problem:
            if gone := self._gone():
                return (
                    f"{gone[0]} was removed or replaced while the agent ran. The agent leaves, and its trials go on from their "
                    "last checkpoints, also elsewhere; started again it makes the directory anew."
                )
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._lost.wait()
            except TimeoutError:
                continue
        return self._problem

    @property
    def writable(self) -> bool:
        """Whether the database still takes what is written: a removed file that is open does."""
        return not self._problem

    def _gone(self) -> list[Path]:
        """What was removed or replaced. A file that cannot be looked at now, as on a network disk that is away, is as it was:
        whether the database can still be used shows by itself."""
        gone: list[Path] = []
        for path in (self._directory / LOCK, self._directory / DATABASE):
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                gone.append(path)
            except OSError as error:
                self._seldom.warn(f"{path} cannot be looked at, and is taken to be as it was: {error}")
            else:
                if self._known.setdefault(path, (found.st_dev, found.st_ino)) != (found.st_dev, found.st_ino):
                    gone.append(path)
        return gone
