"""Reads and writes files in directories that users' code can write to.

Such code may replace its own file by a link to another user's, or by a pipe without a writer: an agent with more rights than its
workers would publish the former as the trial's output, and wait for ever at the latter.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

from tenuto.schemas.text import storable

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
TEXT_BYTES_MAX = 1 << 20
"""Most bytes of a file that is read whole: an exit code, an address, the sentence about an error."""


def is_shortage(error: OSError) -> bool:
    """True if file descriptors or memory ran out: the file may exist all the same."""
    return error.errno in _SHORTAGES


def open_foreign(path: Path, owner: int | None) -> BinaryIO:
    """Opens a file for reading: a regular file, no link, owned by that account (None: any account). Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        if owner is not None and state.st_uid != owner:
            raise PermissionError(errno.EPERM, "belongs to somebody else", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise


def read_foreign(path: Path, owner: int | None) -> str:
    """Beginning of the file, as text that can be stored. Raises OSError."""
    with open_foreign(path, owner) as file:
        return storable(file.read(TEXT_BYTES_MAX).decode(errors="replace"))


def place(path: Path, text: str) -> None:
    """Writes a file atomically, readable by others. A link in its place is replaced, never followed. Raises OSError."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(text)
    os.replace(partial, path)
