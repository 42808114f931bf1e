"""Sends a checkpoint's recorded files as one tar stream of known length."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tenuto.schemas.events.trial import CheckpointFile

CHUNK_BYTES = 1024 * 1024
_BLOCK = tarfile.BLOCKSIZE


class DownloadRefused(Exception):
    """`str(error)` is one sentence for the user."""


def directory_of(location: str) -> Path:
    """The directory that a recorded location names. Raises DownloadRefused."""
    parts = urlsplit(location)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise DownloadRefused(f"This checkpoint is at {location}, which the gateway cannot read; fetch it from there.")
    return Path(unquote(parts.path))


def check_files(directory: Path, files: Sequence[CheckpointFile]) -> None:
    """Raises DownloadRefused if what is on disk is not what was recorded, as far as sizes tell."""
    for file in files:
        path = Path(file.path)
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


def tar_stream(directory: Path, files: Sequence[CheckpointFile]) -> Iterator[bytes]:
    """Raises OSError in the middle, which cuts the connection, when a file's bytes are not what its recorded SHA-256 says."""
    for file in files:
        yield _header(file)
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
        yield b"\0" * (_padded(file.size_bytes) - file.size_bytes)
    yield b"\0" * (2 * _BLOCK)


def _header(file: CheckpointFile) -> bytes:
    info = tarfile.TarInfo(file.path)
    info.size = file.size_bytes
    info.mode = 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // _BLOCK) * _BLOCK
