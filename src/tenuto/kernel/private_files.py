"""Files that only their owner may read, whatever the process's umask."""

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


def write_private(file: Path, content: str | bytes) -> None:
    """Writes the file atomically, with mode 0600. Raises OSError."""
    with _temporary(file, content.encode() if isinstance(content, str) else content) as temporary:
        os.replace(temporary, file)


def make_private(file: Path, content: bytes) -> None:
    """Like `write_private`, but keeps an existing file: if several processes make it at once, the first one's stays."""
    if not file.exists():
        with _temporary(file, content) as temporary, contextlib.suppress(FileExistsError):
            os.link(temporary, file)


@contextlib.contextmanager
def _temporary(file: Path, content: bytes) -> Iterator[str]:
    """A temporary file beside `file` with the content, synced to disk; the directory is synced afterwards, too. Its name is
    random: in containers, processes that share a directory often have the same id, and so has the process after a crash."""
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
