"""A store in a directory that every agent sees. A file gets its name by an atomic rename once all of it is on disk.

Below the operator's directory no link is followed for reading, listing or deleting: workers write there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tenuto.kernel.storage import confined_paths
from tenuto.kernel.storage.store import READ_BYTES, Entry, NotStored, StoreError

PARTIAL_PREFIX = ".partial-"
"""Prefix of files that are being written, and of directories in which checkpoints are put together."""
FILE_MODE = 0o644
"""Mode of stored files: who goes on from a checkpoint may have another account than who made it, such as that of containers.
Whom that concerns, the directories above decide. Some libraries close what they write to all others."""
PUT_TRIES_MAX = 3
"""Most attempts to put a file; repeated only if its directory vanishes between being made and being used."""


class DirectoryStore:
    def __init__(self, anchor: Path, below: str = "") -> None:
        """`anchor` is the operator's directory; the store is the part `below` it."""
        self._anchor = anchor.absolute()
        self._below = tuple(_parts(below)) if below else ()
        self.root = self._anchor.joinpath(*self._below)

    @property
    def url(self) -> str:
        return self.root.as_uri()

    @property
    def packs_small_files(self) -> bool:
        return False  # files are moved into the store, and read in place

    def put_file(self, key: str, source: Path, consume: bool = False) -> None:
        target = self._path(key)
        if consume and not source.exists() and target.exists():
            return  # moved here by an earlier attempt

        def put() -> None:
            if consume and self._take_over(source, target):
                return
            with source.open("rb") as file:
                self._write(target, iter(lambda: file.read(READ_BYTES), b""))

        self._put(target, put)

    def put_bytes(self, key: str, data: bytes) -> None:
        target = self._path(key)
        self._put(target, lambda: self._write(target, iter([data])))

    def _put(self, target: Path, put: Callable[[], None]) -> None:
        for left in reversed(range(PUT_TRIES_MAX)):
            try:
                self._make_parents(target)
                put()
                return
            except OSError as error:
                if left and isinstance(error, FileNotFoundError) and not target.parent.exists():
                    continue  # it was empty, and a deletion removed it
                raise _explained(error, target) from error

    def _take_over(self, source: Path, target: Path) -> bool:
        if stat.S_ISREG(source.lstat().st_mode):  # through a link this would change another file
            source.chmod(FILE_MODE)
        _sync(source)
        try:
            os.replace(source, target)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False
            raise
        _sync(target.parent)
        return True

    def _make_parents(self, target: Path) -> None:
        """Makes the directories above the target and syncs them: a new directory is an entry of its parent."""
        missing = [parent for parent in target.parents if not parent.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        for made in missing:
            _sync(made.parent)

    def _write(self, target: Path, chunks: Iterator[bytes]) -> None:
        descriptor, name = tempfile.mkstemp(prefix=PARTIAL_PREFIX, dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, FILE_MODE)
            os.replace(name, target)
            _sync(target.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def stream(self, key: str, offset: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        path = self._path(key)
        left = sys.maxsize if size_bytes is None else size_bytes
        try:
            with os.fdopen(confined_paths.open_file(self._anchor, self._beneath(key)), "rb") as file:
                file.seek(offset)
                while chunk := file.read(min(READ_BYTES, left)):
                    left -= len(chunk)
                    yield chunk
                if offset and file.tell() == offset:
                    raise NotStored(f"{path} ends before byte {offset}")
        except OSError as error:
            raise _explained(error, path) from error

    def local_path(self, key: str) -> Path | None:
        return self._path(key)

    def stat(self, key: str) -> Entry | None:
        path = self._path(key)
        try:
            status = confined_paths.status(self._anchor, self._beneath(key))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _explained(error, path) from error
        return Entry(key, status.st_size, status.st_mtime_ns // 1000)

    def entries(self, prefix: str) -> Iterator[Entry]:
        above = tuple(_parts(prefix)) if prefix else ()
        try:
            with confined_paths.directory(self._anchor, (*self._below, *above)) as descriptor:
                yield from self._entries(descriptor, above)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _explained(error, self.root) from error

    def _entries(self, descriptor: int, above: tuple[str, ...]) -> Iterator[Entry]:
        """Entries below an open directory. A link is listed under its own name, so that it can be removed."""
        for parts, _, item in confined_paths.walk(descriptor, above):
            if any(part.startswith(PARTIAL_PREFIX) for part in (*parts, item.name)) or item.is_dir(follow_symlinks=False):
                continue
            with contextlib.suppress(FileNotFoundError):  # deleted in the meantime
                status = item.stat(follow_symlinks=False)
                yield Entry("/".join((*parts, item.name)), status.st_size, status.st_mtime_ns // 1000)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            parts = self._beneath(key)
            try:
                with contextlib.suppress(FileNotFoundError):
                    confined_paths.remove(self._anchor, parts)
                with contextlib.suppress(OSError):  # not empty, or another process was first
                    confined_paths.remove_empty(self._anchor, parts[:-1], keep=len(self._below))
            except NotADirectoryError:
                continue
            except OSError as error:
                raise _explained(error, self._path(key)) from error

    def delete_unfinished(self, older_than_us: int, dry_run: bool = False) -> list[str]:
        try:
            with confined_paths.directory(self._anchor, self._below) as descriptor:
                return sorted(_delete_unfinished(descriptor, older_than_us, dry_run))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _explained(error, self.root) from error

    def _path(self, key: str) -> Path:
        return self.root.joinpath(*_parts(key))

    def _beneath(self, key: str) -> tuple[str, ...]:
        return (*self._below, *_parts(key))


def _parts(key: str) -> list[str]:
    parts = key.split("/")
    if not key or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise StoreError(f"{key!r} is not a key.")
    return parts


def _delete_unfinished(descriptor: int, older_than_us: int, dry_run: bool) -> list[str]:
    """Removes old unfinished files and directories under an open directory; returns their keys."""
    found: list[str] = []
    for parts, parent, item in confined_paths.walk(descriptor):
        inside = any(part.startswith(PARTIAL_PREFIX) for part in parts)
        if inside or not item.name.startswith(PARTIAL_PREFIX):
            continue
        with contextlib.suppress(OSError):
            if _newest_us(parent, item) < older_than_us:
                found.append("/".join((*parts, item.name)))
                if not dry_run:
                    _remove(parent, item)
    return found


def _newest_us(parent: int, item: os.DirEntry[str]) -> int:
    """Time of the last write to the file, or to anything in the directory."""
    newest_ns = item.stat(follow_symlinks=False).st_mtime_ns
    if item.is_dir(follow_symlinks=False):
        descriptor = os.open(item.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            for _, _, inside in confined_paths.walk(descriptor):
                newest_ns = max(newest_ns, inside.stat(follow_symlinks=False).st_mtime_ns)
        finally:
            os.close(descriptor)
    return newest_ns // 1000


def _remove(parent: int, item: os.DirEntry[str]) -> None:
    if item.is_dir(follow_symlinks=False):
        shutil.rmtree(item.name, dir_fd=parent)
    else:
        os.unlink(item.name, dir_fd=parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explained(error: OSError, path: Path) -> StoreError:
    if isinstance(error, StoreError):
        return error
    kind = NotStored if isinstance(error, (FileNotFoundError, NotADirectoryError)) else StoreError
    made = kind(f"{path}: {error.strerror or error}")
    made.errno = error.errno
    return made
