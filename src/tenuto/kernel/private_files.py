"""Files that only their owner may read, whatever the process's umask is."""

from __future__ import annotations

import contextlib
import os
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
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(file)
