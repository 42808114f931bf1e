"""Temporary directories of commands. One that a killed command left is removed by the next command that makes one like it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tenuto.kernel.tree_removal import remove_tree

_TRIES_MAX = 20
"""Most tries to make one that no other command takes for a dead one's before it is locked."""


@contextlib.contextmanager
def scratch_directory(purpose: str) -> Iterator[Path]:
    """A directory of this process alone, under the usual temporary directory. `purpose` is part of its name. Raises OSError."""
    prefix = f"tenuto-{os.getuid()}-{purpose}-"
    _sweep(prefix)
    path, held = _made(prefix)
    try:
        yield path
    finally:
        remove_tree(path)
        os.close(held)


def _made(prefix: str) -> tuple[Path, int]:
    for _ in range(_TRIES_MAX):
        path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        with contextlib.suppress(OSError):  # no locks on this file system: no process removes it, either
            fcntl.flock(held, fcntl.LOCK_EX)
        if path.exists():
            return path, held
        os.close(held)
    raise OSError(f"directories {prefix}* are removed from {tempfile.gettempdir()} again and again")


def _sweep(prefix: str) -> None:
    """Removes directories of this account that no living process has locked."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(tempfile.gettempdir())):
            if not entry.name.startswith(prefix):
                continue
            state = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
                continue
            with contextlib.suppress(OSError):  # in use, or removed meanwhile
                held = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(entry.path)
                finally:
                    os.close(held)
