"""Opens files beneath a directory without ever following a link (like openat2's RESOLVE_BENEATH). Workers write there, and a
service that reads or deletes for all users must not be led elsewhere, nor made to wait by a pipe. Every function raises
OSError."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
DEPTH_MAX = 32
"""Deepest nesting of directories: files of checkpoints lie a few levels deep. Each level costs a descriptor and a part of the
stack, and workers make as many as they like."""
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotAPlainFile(OSError):
    """A link, a pipe or a device is in the place of a regular file or directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ELOOP, "it is a link or no regular file, so it is not read", str(path))


@contextmanager
def directory(anchor: Path, parts: Sequence[str]) -> Iterator[int]:
    """Descriptor of the directory. The anchor itself is the operator's and may be a link."""
    descriptor = os.open(anchor, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for index, part in enumerate(parts):
            try:
                below = os.open(part, _DIRECTORY, dir_fd=descriptor)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(descriptor, part):
                    raise NotAPlainFile(anchor.joinpath(*parts[: index + 1])) from None
                raise
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(anchor: Path, parts: Sequence[str]) -> int:
    """Descriptor for reading a regular file."""
    with directory(anchor, parts[:-1]) as parent:
        try:
            descriptor = os.open(parts[-1], _FILE, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
                raise NotAPlainFile(anchor.joinpath(*parts)) from None
            raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotAPlainFile(anchor.joinpath(*parts))
    return descriptor


def status(anchor: Path, parts: Sequence[str]) -> os.stat_result:
    """Status of a regular file."""
    with directory(anchor, parts[:-1]) as parent:
        found = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        raise NotAPlainFile(anchor.joinpath(*parts))
    return found


def remove(anchor: Path, parts: Sequence[str]) -> None:
    """Removes the entry itself, of any kind except a directory."""
    with directory(anchor, parts[:-1]) as parent:
        os.unlink(parts[-1], dir_fd=parent)


def remove_empty(anchor: Path, parts: Sequence[str], keep: int) -> None:
    """Removes the directory and those above it, as long as they are empty and deeper than `keep` parts."""
    for depth in range(len(parts), keep, -1):
        with directory(anchor, parts[: depth - 1]) as parent:
            os.rmdir(parts[depth - 1], dir_fd=parent)


def walk(descriptor: int, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int, os.DirEntry[str]]]:
    """Every entry beneath an open directory, sorted: the parts above it, the descriptor of its directory, the entry. A
    directory comes before its content, and is left out if it was removed in the meantime."""
    with os.scandir(descriptor) as found:
        items = sorted(found, key=lambda item: item.name)
    for item in items:
        yield above, descriptor, item
        if not item.is_dir(follow_symlinks=False):
            continue
        if len(above) >= DEPTH_MAX:
            raise OSError(
                errno.ENAMETOOLONG, f"directories lie more than {DEPTH_MAX} deep within each other", "/".join(above[:3])
            )
        try:
            below = os.open(item.name, _DIRECTORY, dir_fd=descriptor)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            yield from walk(below, (*above, item.name))
        finally:
            os.close(below)


def _is_link(parent: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False
