"""Stores packed model directories by their content: `contexts/<sha256>.tar.gz` on the shared directory."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_INCOMING = ".incoming-"
NAMES_MAX = 100_000
"""Files in one model directory."""
EXPANSION_MAX = 50
"""A model directory may unpack to this many times the limit of its packed size; beyond it the archive is a trap, not code."""


class ContextRefused(Exception):
    """`str(error)` is one sentence for the user. `code`: too_large, invalid or no_space."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


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
                self._directory.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.NamedTemporaryFile(dir=self._directory, prefix=_INCOMING, delete=False)  # noqa: SIM115
            self._file.write(data)
        except OSError as error:
            raise _refused(error) from error
        self._hash.update(data)

    async def store(self) -> StoredContext:
        """Checks the archive, makes it durable and gives it its name. Raises ContextRefused."""
        if self._file is None:
            raise ContextRefused("The model directory is missing: send it as the part `context`, a tar.gz file.", "invalid")
        file, self._file = self._file, None
        try:
            return await asyncio.to_thread(self._store, file)
        finally:
            file.close()
            Path(file.name).unlink(missing_ok=True)

    def _store(self, file: IO[bytes]) -> StoredContext:
        target = self._directory / f"{self._hash.hexdigest()}.tar.gz"
        try:
            file.flush()
            os.fsync(file.fileno())
            names = _top_level(Path(file.name), EXPANSION_MAX * self._bytes_max)
            os.chmod(file.name, 0o644)  # agents may run as other users
            os.replace(file.name, target)
            descriptor = os.open(self._directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _refused(error) from error
        return StoredContext(self._hash.hexdigest(), self.size_bytes, names)


def clean(directory: Path) -> None:
    """Removes what a killed gateway left half received. Call at start, before anything comes in."""
    for path in directory.glob(f"{_INCOMING}*"):
        path.unlink(missing_ok=True)


def _refused(error: OSError) -> ContextRefused:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ContextRefused("The cluster's shared directory has no space left; free some and try again.", "no_space")
    return ContextRefused(f"The cluster's shared directory cannot be written: {error.strerror or error}.", "no_space")


def _top_level(path: Path, bytes_max: int) -> frozenset[str]:
    """Reads the archive to its end. Raises ContextRefused if it is none, or would write outside its directory."""
    names: set[str] = set()
    total_bytes = 0
    try:
        with tarfile.open(path, "r|gz") as archive:
            for count, member in enumerate(archive):
                total_bytes += member.size
                if count >= NAMES_MAX or total_bytes > bytes_max:
                    raise ContextRefused(
                        f"The model directory unpacks to more than {NAMES_MAX} files or {bytes_max} bytes.", "too_large"
                    )
                parts = Path(member.name).parts
                outside = member.name.startswith("/") or ".." in parts
                if outside or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
                    raise ContextRefused(f"The archive has an entry that cannot be unpacked safely: {member.name!r}.", "invalid")
                if parts:
                    names.add(parts[0])
    except (tarfile.TarError, EOFError, zlib.error, UnicodeError) as error:
        raise ContextRefused(f"The part `context` is not a readable tar.gz file: {error}.", "invalid") from error
    return frozenset(names)
