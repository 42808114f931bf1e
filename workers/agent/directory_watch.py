"""Watch over the agent's directory and database: signs that they are gone or damaged, and the sentence for the operator."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from pathlib import Path

from tenuto.kernel.backoff import Seldom

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Pause between checks of the directory: an agent whose directory was removed accepts work that it cannot do for this time."""
DATABASE = "agent.sqlite"
LOCK = "agent.lock"

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PROTOCOL)
_EMPTIED = "no such table"
"""SQLite's words if a damaged database looks empty: its tables were made when it was opened."""
_LOST = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
"""SQLite's errors after which the file is lost. Not among them: a full disk (training goes on, and reports are tried again)
and a busy file."""


def database_problem(error: BaseException, path: Path) -> str | None:
    """Sentence for an error with which the agent cannot go on: what, why, what to do. None: it can."""
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details of the extended code
    if code in _DAMAGED or _EMPTIED in str(error):
        return (
            f"{path} is damaged ({error}). It holds reports that were not recorded yet, which are lost with it; all else is on "
            f"record. Move it away to start the agent with an empty one: mv {path} {path}.damaged"
        )
    if code in _LOST:
        return f"{path} cannot be used ({error}): repair the disk or the permissions of {path.parent}, and start the agent again."
    return None


class DirectoryWatch:
    """Notices that the directory was removed or replaced. Open files still work then, so nothing else would show it."""

    def __init__(self, directory: Path) -> None:
        """Requires that the files exist."""
        self._directory = directory
        self._lost = asyncio.Event()
        self._problem = ""
        self._seldom = Seldom(logger)
        self._known: dict[Path, tuple[int, int]] = {}
        """Device and inode of each file, when first seen."""
        self._gone()

    def failed(self, error: BaseException) -> None:
        """Notes that a call to the database raised this error."""
        if not self._problem and (problem := database_problem(error, self._directory / DATABASE)) is not None:
            self._problem = problem
            self._lost.set()

    async def lost(self) -> str:
        """Returns when the agent cannot go on: one sentence with the reason and what to do."""
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
        """True if the database still accepts writes: a removed file that is open does."""
        return not self._problem

    def _gone(self) -> list[Path]:
        """Files that were removed or replaced. A file that cannot be examined now, such as on an unreachable network disk,
        counts as unchanged: the database itself shows whether it can still be used."""
        gone: list[Path] = []
        for path in (self._directory / LOCK, self._directory / DATABASE):
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                gone.append(path)
            except OSError as error:
                self._seldom.warn(f"{path} cannot be examined, so it counts as unchanged: {error}")
            else:
                if self._known.setdefault(path, (found.st_dev, found.st_ino)) != (found.st_dev, found.st_ino):
                    gone.append(path)
        return gone
