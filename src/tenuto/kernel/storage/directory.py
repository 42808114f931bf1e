"""A store in a directory that every agent sees. A file gets its name by an atomic rename when all of it is on disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tenuto.kernel.storage.store import READ_BYTES, Entry, NotStored, StoreError

PARTIAL_PREFIX = ".partial-"
"""Files that are being written, and directories in which checkpoints are put together."""
PUT_TRIES_MAX = 3
"""Only where the directory vanishes between being made and being used."""


class DirectoryStore:
    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @property
    def url(self) -> str:
        return self.root.as_uri()

    @property
    def packs_small_files(self) -> bool:
        return False  # files are moved into it, and read in place

    def put_file(self, key: str, source: Path, consume: bool = False) -> None:
        target = self._path(key)
        if consume and not source.exists() and target.exists():
            return  # taken over by an earlier try

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
                    continue  # it was empty, and a deletion took it away
                raise _explained(error, target) from error

    def _take_over(self, source: Path, target: Path) -> bool:
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
        """Also on disk: a new directory is an entry of its parent."""
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
            os.chmod(name, 0o644)
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
            with path.open("rb") as file:
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
            status = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _explained(error, path) from error
        return Entry(key, status.st_size, status.st_mtime_ns // 1000)

    def entries(self, prefix: str) -> Iterator[Entry]:
        try:
            yield from self._walk(self._path(prefix) if prefix else self.root)
        except OSError as error:
            raise _explained(error, self.root) from error

    def _walk(self, directory: Path) -> Iterator[Entry]:
        try:
            items = sorted(os.scandir(directory), key=lambda item: item.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for item in items:
            if item.name.startswith(PARTIAL_PREFIX):
                continue
            if item.is_dir(follow_symlinks=False):
                yield from self._walk(Path(item.path))
                continue
            with contextlib.suppress(FileNotFoundError):  # deleted since
                status = item.stat(follow_symlinks=False)
                key = Path(item.path).relative_to(self.root).as_posix()
                yield Entry(key, status.st_size, status.st_mtime_ns // 1000)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            path = self._path(key)
            try:
                path.unlink(missing_ok=True)
                self._remove_empty(path.parent)
            except NotADirectoryError:
                continue
            except OSError as error:
                raise _explained(error, path) from error

    def _remove_empty(self, directory: Path) -> None:
        while directory != self.root and directory.is_relative_to(self.root):
            try:
                directory.rmdir()
            except OSError:  # not empty, or somebody else was first
                return
            directory = directory.parent

    def delete_unfinished(self, older_than_us: int, dry_run: bool = False) -> list[str]:
        found = []
        for path in self.root.rglob(f"{PARTIAL_PREFIX}*"):
            with contextlib.suppress(OSError):
                newest = max((item.lstat().st_mtime_ns for item in [path, *path.rglob("*")]), default=0)
                if newest // 1000 < older_than_us:
                    found.append(path.relative_to(self.root).as_posix())
                    if not dry_run:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return sorted(found)

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not key or any(part in ("", ".", "..") for part in parts):
            raise StoreError(f"{key!r} is not a key.")
        return self.root.joinpath(*parts)


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
