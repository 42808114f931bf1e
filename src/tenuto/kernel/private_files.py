"""Files that only their owner may read, whatever the process's umask is."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def private(path: str, flags: int) -> int:
    """An `opener` for `open`: the file is made, or becomes, readable by its owner only. Raises OSError."""
    descriptor = os.open(path, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_private(file: Path, text: str) -> None:
    """Atomically, with mode 0600. Raises OSError."""
    with _temporary(file, text.encode()) as temporary:
        os.replace(temporary, file)


def make_private(file: Path, content: bytes) -> None:
    """As `write_private`, but a file that is there stays: of several processes that make it at once, the first one's stands."""
    if not file.exists():
        with _temporary(file, content) as temporary, contextlib.suppress(FileExistsError):
            os.link(temporary, file)


@contextlib.contextmanager
def _temporary(file: Path, content: bytes) -> Iterator[str]:
    """A file beside it with the content, on disk; what is done to its name is on disk afterwards, too. The name is a random one:
    in containers, processes that share a directory often have the same id, and so has the one that comes after a crash."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
