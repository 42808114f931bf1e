"""Removal of directories with untrusted contents.

`shutil.rmtree` goes down by recursion and keeps a descriptor for each level, so a directory in which ten thousand lie within each
other ends it, and with some hundred it takes the descriptors of the process. One that its owner has closed ends it, too.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | Path) -> None:
    """Removes a directory with all that is in it, or as much of it as this account can. Links are removed, and not followed. Does
    nothing if there is no directory. No other process may write to it any more."""
    with contextlib.suppress(OSError):
        _open_up(path)
        top = os.open(path, _DIRECTORY)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(path)


def _empty(top: int) -> None:
    """Directories move up to the top before they are emptied, so none is ever deeper than two levels, whatever there was."""
    number = 0
    waiting = [name for name in os.listdir(top) if not _unlinked(name, top)]
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):  # the others go all the same
            _open_up(name, top)
            below = os.open(name, _DIRECTORY, dir_fd=top)
            try:
                for moved in _moved_up(below, top, number):
                    waiting.append(str(moved))  # at once: what has moved is emptied even if the next one cannot move
                    number = moved
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=top)


def _moved_up(below: int, top: int, number: int) -> Iterator[int]:
    """Moves the directories in `below` up to the top, and removes all else there. Yields their new names, which come after
    `number`."""
    for inside in os.listdir(below):
        if not _unlinked(inside, below):
            _open_up(inside, below)
            number = _free(number, top)
            os.rename(inside, str(number), src_dir_fd=below, dst_dir_fd=top)
            yield number


def _free(number: int, top: int) -> int:
    """The next number that nothing is called."""
    while True:
        number += 1
        try:
            os.stat(str(number), dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            return number


def _unlinked(name: str, parent: int) -> bool:
    """False: it is a directory."""
    try:
        os.unlink(name, dir_fd=parent)
    except OSError:
        return not _is_directory(name, parent)
    return True


def _is_directory(name: str, parent: int) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    return False


def _open_up(name: str | Path, parent: int | None = None) -> None:
    """Lets its owner read and change a directory that it had closed to itself; root needs no right."""
    if os.geteuid() != 0 and stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        with contextlib.suppress(OSError):  # it is another account's, who may have opened it
            os.chmod(name, 0o700, dir_fd=parent)
