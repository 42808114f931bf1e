"""Reads stored files, and verifies every byte against the manifest while it passes. Files that are next to each other in a
pack are read by one request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from tenuto.kernel.storage.manifest import StoredFile
from tenuto.kernel.storage.store import NotStored, Store

GAP_BYTES_MAX = 256 << 10
"""Largest gap between two wanted files of a pack that is read over, because that is quicker than another request."""

Run = tuple[StoredFile, ...]
"""Files that follow each other in one blob."""


class Damaged(Exception):
    """Stored content differs from the saved one. `str(error)` names the file and the difference."""


def runs(files: Iterable[StoredFile]) -> list[Run]:
    """Files grouped into runs, in the given order; sorted by blob and offset they give the fewest runs."""
    found: list[list[StoredFile]] = []
    end = 0
    for file in files:
        last = found[-1][-1] if found else None
        follows = last is not None and file.offset is not None and last.offset is not None and last.blob == file.blob
        if follows and 0 <= (file.offset or 0) - end <= GAP_BYTES_MAX:
            found[-1].append(file)
        else:
            found.append([file])
        end = (file.offset or 0) + file.size_bytes
    return [tuple(run) for run in found]


def by_place(files: Iterable[StoredFile]) -> list[StoredFile]:
    return sorted(files, key=lambda file: (file.blob, file.offset or 0, file.path))


def read_run(store: Store, run: Run) -> Iterator[tuple[StoredFile, Iterator[bytes]]]:
    """Contents of the files of one run. Each must be read to its end before the next file is requested. Its iterator raises
    Damaged, at the latest at its end; the next file may be read nevertheless. Raises StoreError."""
    first = run[0]
    if first.offset is None:
        blob = _Blob(store.stream(first.blob), 0)
    else:
        end = (run[-1].offset or 0) + run[-1].size_bytes
        span = end - first.offset
        blob = _Blob(store.stream(first.blob, first.offset, span) if span else iter(()), first.offset)
    try:
        for file in run:
            yield file, _checked(blob, file)
    finally:
        blob.close()


def read_files(store: Store, files: Iterable[StoredFile]) -> Iterator[tuple[StoredFile, Iterator[bytes]]]:
    """Contents of files in the given order, as of `read_run`, one run after the other."""
    for run in runs(files):
        yield from read_run(store, run)


def _checked(blob: _Blob, file: StoredFile) -> Iterator[bytes]:
    digest, size_bytes = hashlib.sha256(), 0
    try:
        for chunk in blob.rest() if file.offset is None else blob.part(file.offset, file.size_bytes):
            digest.update(chunk)
            size_bytes += len(chunk)
            yield chunk
    except NotStored as error:
        raise Damaged(f"{file.path} is not there") from error
    if size_bytes != file.size_bytes:
        raise Damaged(f"{file.path} has {size_bytes} bytes where {file.size_bytes} were saved")
    if digest.hexdigest() != file.sha256:
        raise Damaged(f"{file.path} does not have the SHA-256 that was saved")


class _Blob:
    """A stream of bytes of which parts are taken, from the first to the last."""

    def __init__(self, chunks: Iterator[bytes], position: int) -> None:
        self._chunks, self._position = chunks, position
        self._left = b""
        self._missing: NotStored | None = None

    def rest(self) -> Iterator[bytes]:
        yield from self._chunks

    def part(self, offset: int, size_bytes: int) -> Iterator[bytes]:
        """Bytes of one part; fewer if the stream ends. Raises NotStored, and then for every later part, too."""
        if size_bytes:
            for _ in self._take(offset - self._position):
                pass
            yield from self._take(size_bytes)

    def _take(self, size_bytes: int) -> Iterator[bytes]:
        while size_bytes > 0:
            chunk = self._left or self._next()
            if not chunk:
                return
            taken, self._left = chunk[:size_bytes], chunk[size_bytes:]
            self._position += len(taken)
            size_bytes -= len(taken)
            yield taken

    def _next(self) -> bytes:
        if self._missing is not None:
            raise self._missing
        try:
            return next(self._chunks, b"")
        except NotStored as error:
            self._missing = error
            raise

    def close(self) -> None:
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()
