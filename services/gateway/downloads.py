"""Sends a checkpoint's recorded files as one tar stream of known length, from whatever store they are in."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Damaged
from tenuto.kernel.storage.opening import is_manifest, open_location
from tenuto.schemas.config.storage import CheckpointStorage
from tenuto.schemas.events.trial import CheckpointFile

CHUNK_BYTES = 1024 * 1024
_BLOCK = tarfile.BLOCKSIZE

Read = Callable[[CheckpointFile], Iterator[bytes]]
"""A recorded file's bytes; the files in the order of the record, each once. Raises OSError in the middle where they are not what
was recorded."""


class DownloadRefused(Exception):
    """`str(error)` is one sentence for the user."""


def open_checkpoint(location: str, storage: CheckpointStorage, files: Sequence[CheckpointFile]) -> Read:
    """Raises DownloadRefused if what is stored is not what was recorded, as far as names and sizes tell; StoreError where the
    store is away."""
    if not is_manifest(location):
        directory = directory_of(location)
        check_files(directory, files)
        return lambda file: _read_file(directory, file)
    try:
        store, checkpoint_id = open_location(location, storage)
        manifest = checkpoints.read_manifest(store, checkpoint_id)
        checkpoints.check_record(manifest, files)
    except Damaged as error:
        raise DownloadRefused(f"The checkpoint cannot be read: {str(error).rstrip('.')}.") from error
    stored = {file.path: file for file in manifest.files}
    for item in manifest.files:
        if store.local_path(item.blob) is None:
            break  # asking a distant store about each file would take longer than finding out on the way
        if item.offset is not None:
            continue
        found = store.stat(item.blob)
        if found is None or found.size_bytes != item.size_bytes:
            raise DownloadRefused(f"The checkpoint's file {item.path} is damaged or gone; `tenuto ckpt verify` says more.")

    contents = checkpoints.read(store, [stored[file.path] for file in files])

    def read(file: CheckpointFile) -> Iterator[bytes]:
        found, chunks = next(contents)
        if found.path != file.path:
            raise ValueError(f"{file.path} is read out of turn")
        try:
            yield from chunks
        except Damaged as error:
            raise OSError(f"{error}: it was damaged") from error

    return read


def verify_checkpoint(location: str, storage: CheckpointStorage, files: Sequence[CheckpointFile]) -> list[str]:
    """Reads every byte. What is wrong, in words; empty where all is as recorded. Raises StoreError where the store is away."""
    if is_manifest(location):
        try:
            store, checkpoint_id = open_location(location, storage)
            manifest = checkpoints.read_manifest(store, checkpoint_id)
            checkpoints.check_record(manifest, files)
        except Damaged as error:
            return [str(error)]
        return checkpoints.verify(store, manifest)
    problems = []
    directory = directory_of(location)
    for file in files:
        try:
            check_files(directory, [file])
            for _ in _read_file(directory, file):
                pass
        except (DownloadRefused, OSError) as error:
            problems.append(str(error))
    return problems


def directory_of(location: str) -> Path:
    """The plain directory that a recorded location names. Raises DownloadRefused."""
    parts = urlsplit(location)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise DownloadRefused(f"This checkpoint is at {location}, which the gateway cannot read; fetch it from there.")
    return Path(unquote(parts.path))


def check_files(directory: Path, files: Sequence[CheckpointFile]) -> None:
    """Raises DownloadRefused if what is on disk is not what was recorded, as far as sizes tell."""
    for file in files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts:
            raise DownloadRefused(f"The checkpoint's record names a file outside its directory: {file.path!r}.")
        try:
            size_bytes = (directory / path).stat().st_size
        except OSError as error:
            raise DownloadRefused(f"The checkpoint's file {file.path} cannot be read: {error.strerror}.") from error
        if size_bytes != file.size_bytes:
            raise DownloadRefused(
                f"The checkpoint's file {file.path} has {size_bytes} bytes where {file.size_bytes} were recorded; it was damaged."
            )


def tar_size_bytes(files: Sequence[CheckpointFile]) -> int:
    """Exact length of the stream, so that a client can tell a download that was cut off."""
    return sum(len(_header(file)) + _padded(file.size_bytes) for file in files) + 2 * _BLOCK


def tar_stream(read: Read | Path, files: Sequence[CheckpointFile]) -> Iterator[bytes]:
    """Raises OSError in the middle, which cuts the connection, when a file's bytes are not what its recorded SHA-256 says. A
    path stands for a plain directory."""
    directory = read if isinstance(read, Path) else None
    for file in files:
        yield _header(file)
        yield from _read_file(directory, file) if directory is not None else read(file)  # type: ignore[operator]
        yield b"\0" * (_padded(file.size_bytes) - file.size_bytes)
    yield b"\0" * (2 * _BLOCK)


def _read_file(directory: Path, file: CheckpointFile) -> Iterator[bytes]:
    digest = hashlib.sha256()
    left = file.size_bytes
    with (directory / file.path).open("rb") as source:
        while left:
            chunk = source.read(min(CHUNK_BYTES, left))
            if not chunk:
                raise OSError(f"{file.path} became shorter while it was sent")
            digest.update(chunk)
            left -= len(chunk)
            yield chunk
    if file.sha256 and digest.hexdigest() != file.sha256:
        raise OSError(f"{file.path} does not have the recorded SHA-256: it was damaged")


def _header(file: CheckpointFile) -> bytes:
    info = tarfile.TarInfo(file.path)
    info.size = file.size_bytes
    info.mode = 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // _BLOCK) * _BLOCK
