"""Sends a checkpoint's recorded files as one tar stream of known length, from whatever store they are in."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator, Sequence

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Damaged
from tenuto.kernel.storage.store import Store
from tenuto.schemas.events.trial import CheckpointFile
from tenuto.services.gateway.http.refusals import RequestRefused

_BLOCK = tarfile.BLOCKSIZE

Opened = tuple[Store, str]
Read = Callable[[CheckpointFile], Iterator[bytes]]
"""Reader of a recorded file's bytes; called for the files in the order of the record, once each. Raises OSError in the middle if
they differ from the record."""


class DownloadRefused(RequestRefused):
    """`str(error)` is one sentence for the user."""

    code = "gone"


def open_checkpoint(opened: Opened, files: Sequence[CheckpointFile]) -> Read:
    """Reader of a checkpoint's files. `opened`: its trial's store, and its id. Raises DownloadRefused if the stored files are not
    the recorded ones, as far as names and sizes tell; StoreError if the store is unreachable."""
    store, checkpoint_id = opened
    try:
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


def verify_checkpoint(opened: Opened, files: Sequence[CheckpointFile]) -> list[str]:
    """Faults of a checkpoint, in words, found by reading every byte; empty if all is as recorded. Raises StoreError if the store
    is unreachable."""
    store, checkpoint_id = opened
    try:
        manifest = checkpoints.read_manifest(store, checkpoint_id)
        checkpoints.check_record(manifest, files)
    except Damaged as error:
        return [str(error)]
    return checkpoints.verify(store, manifest)


def tar_size_bytes(files: Sequence[CheckpointFile]) -> int:
    """Exact length of the stream, so that a client can tell a download that was cut off."""
    return sum(len(_header(file)) + _padded(file.size_bytes) for file in files) + 2 * _BLOCK


def tar_stream(read: Read, files: Sequence[CheckpointFile]) -> Iterator[bytes]:
    """Stream of the files as tar. Raises OSError in the middle, which cuts the connection, if a file's bytes do not match its
    recorded SHA-256."""
    for file in files:
        yield _header(file)
        yield from read(file)
        yield b"\0" * (_padded(file.size_bytes) - file.size_bytes)
    yield b"\0" * (2 * _BLOCK)


def _header(file: CheckpointFile) -> bytes:
    info = tarfile.TarInfo(file.path)
    info.size = file.size_bytes
    info.mode = 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // _BLOCK) * _BLOCK
