"""Stores packed model directories by their content: `contexts/<sha256>.tar.gz` on the shared directory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tenuto.services.gateway.reader.archives import ContextRefused

_INCOMING = ".incoming-"
DIRECTORY_MODE, ARCHIVE_MODE = 0o750, 0o640
"""Modes for reading by agents that are root, have the gateway's account or are in its group; not by the account of users' code,
which could otherwise read other users' submissions."""
Judge = Callable[[Path], Awaitable[frozenset[str]]]
"""Names at the top of a packed model directory. Raises ContextRefused."""


@dataclass(frozen=True)
class StoredContext:
    context_hash: str
    size_bytes: int
    top_level: frozenset[str]
    """Names at the top of the model directory."""

    def has_module(self, module: str) -> bool:
        top = module.partition(".")[0]
        return top in self.top_level or f"{top}.py" in self.top_level


class Incoming:
    """One archive on its way in. Use as a context manager: what was not stored leaves no trace."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._directory, self._bytes_max = directory, bytes_max
        self._file: IO[bytes] | None = None
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def __enter__(self) -> Incoming:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            Path(self._file.name).unlink(missing_ok=True)
            self._file = None

    def write(self, data: bytes) -> None:
        """Raises ContextRefused."""
        self.size_bytes += len(data)
        if self.size_bytes > self._bytes_max:
            raise ContextRefused(
                f"The packed model directory is larger than {self._bytes_max} bytes; move data out of it, or list what is not "
                "needed in .tenutoignore.",
                "too_large",
            )
        try:
            if self._file is None:
                self._directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
                self._file = tempfile.NamedTemporaryFile(dir=self._directory, prefix=_INCOMING, delete=False)  # noqa: SIM115
            self._file.write(data)
        except OSError as error:
            raise _refused(error) from error
        self._hash.update(data)

    async def store(self, judge: Judge) -> StoredContext:
        """Checks the archive, makes it durable and gives it its name. Raises ContextRefused."""
        if self._file is None:
            raise ContextRefused("The model directory is missing: send it as the part `context`, a tar.gz file.", "invalid")
        file, self._file = self._file, None
        try:
            await asyncio.to_thread(_sync, file)
            names = await judge(Path(file.name))
            await asyncio.to_thread(self._name, file)
        except OSError as error:
            raise _refused(error) from error
        finally:
            file.close()
            Path(file.name).unlink(missing_ok=True)
        return StoredContext(self._hash.hexdigest(), self.size_bytes, names)

    def _name(self, file: IO[bytes]) -> None:
        os.chmod(file.name, ARCHIVE_MODE)
        os.replace(file.name, self._directory / f"{self._hash.hexdigest()}.tar.gz")
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def clean(directory: Path) -> None:
    """Removes what a killed gateway left half received, and closes what an earlier version left open. Call at start, before
    anything comes in."""
    with contextlib.suppress(OSError):  # there is none yet, or it is the operator's own
        directory.chmod(DIRECTORY_MODE)
    for path in directory.glob(f"{_INCOMING}*"):
        path.unlink(missing_ok=True)


def _refused(error: OSError) -> ContextRefused:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ContextRefused("The cluster's shared directory has no space left; free some and try again.", "no_space")
    return ContextRefused(f"The cluster's shared directory cannot be written: {error.strerror or error}.", "no_space")


__all__ = ["ContextRefused", "Incoming", "Judge", "StoredContext", "clean"]
