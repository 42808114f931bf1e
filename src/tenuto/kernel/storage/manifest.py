"""The manifest of a checkpoint: its files, and the blobs of the store that hold them."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tenuto.schemas.base import Model
from tenuto.schemas.events.trial import CheckpointFile

MANIFESTS = "manifests"
BLOBS = "blobs"
MANIFEST_BYTES_MAX = 64 << 20
"""Most bytes of a manifest: some 200,000 files; a checkpoint with more should pack them."""
END_BYTES = 1 << 20
"""Bytes at each end of a large file that are hashed first: if no stored file has the same ends, the file is new and need not
be read whole to know it."""


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f"{path!r} is not a path inside the checkpoint")
    return path


def _blob(key: str) -> str:
    if not key.startswith(f"{BLOBS}/") or key.count("/") != 1:
        raise ValueError(f"{key!r} is not a blob")
    return key


BlobKey = Annotated[str, AfterValidator(_blob)]


class StoredFile(Model):
    path: Annotated[str, AfterValidator(_inside)]
    """Path relative to the checkpoint's directory, with `/`."""
    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    blob: BlobKey
    """Key of the blob, below the trial's prefix."""
    offset: int | None = Field(default=None, ge=0)
    """Position of the file's bytes in the blob, if that is a pack of several files. None: the blob is this file alone."""
    ends_sha256: str = ""
    """SHA-256 of the file's first and last MiB; only for large files."""

    @property
    def recorded(self) -> CheckpointFile:
        return CheckpointFile(path=self.path, size_bytes=self.size_bytes, sha256=self.sha256)


class Pack(Model):
    """A blob that holds several files, one after the other."""

    blob: BlobKey
    size_bytes: int = Field(ge=0)
    """Size of the whole pack, including files that this checkpoint does not use."""


class Manifest(Model):
    format: Literal[1, 2] = 2
    """Version of the format; 1 has no packs."""
    checkpoint_id: str
    files: tuple[StoredFile, ...]
    """Files, sorted by path."""
    packs: tuple[Pack, ...] = ()
    """Packs that `files` refer to."""
    owners: tuple[tuple[int, ...], ...] = ()
    """Files that each rank saved, as indices in `files`, by rank. Empty: ranks saved no files of their own."""

    @model_validator(mode="after")
    def _owns_files(self) -> Self:
        if any(not 0 <= place < len(self.files) for places in self.owners for place in places):
            raise ValueError("owners name files that are not there")
        return self

    @model_validator(mode="after")
    def _inside_packs(self) -> Self:
        sizes = {pack.blob: pack.size_bytes for pack in self.packs}
        for file in self.files:
            if file.offset is not None and file.offset + file.size_bytes > sizes.get(file.blob, -1):
                raise ValueError(f"{file.path} is not inside the pack {file.blob}")
        return self

    def own_files(self, rank: int, ranks: int) -> tuple[StoredFile, ...] | None:
        """Files that this rank needs of a checkpoint saved by the same number of ranks: its own, and those of rank 0. None:
        all files."""
        if ranks < 2 or len(self.owners) != ranks:
            return None
        return tuple(self.files[place] for place in sorted({*self.owners[0], *self.owners[rank]}))

    @property
    def recorded(self) -> tuple[CheckpointFile, ...]:
        """The files as they are recorded."""
        return tuple(file.recorded for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def manifest_key(checkpoint_id: str) -> str:
    return f"{MANIFESTS}/{checkpoint_id}.json"


def blob_key(name: str, checkpoint_id: str) -> str:
    """Key of a new blob. `name` identifies the content: a file's SHA-256, for a pack the SHA-256 over those of its files, for
    a large file (which is sent while it is hashed) a unique name. The second part is the checkpoint that stored it first.
    Without it a blob could come back under the same name while its deletion is under way, and be deleted with it; so no key is
    ever written for two checkpoints, nor twice with different contents."""
    return f"{BLOBS}/{name}.{checkpoint_id}"


def writer_of(key: str) -> str:
    """Id of the checkpoint that a blob or a manifest was stored for."""
    name = key.rpartition("/")[2]
    return name.removesuffix(".json") if key.startswith(f"{MANIFESTS}/") else name.partition(".")[2]


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ends_of(path: Path, size_bytes: int) -> str:
    """SHA-256 of the first and the last END_BYTES of a file. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        digest = hashlib.sha256(file.read(END_BYTES))
        file.seek(max(0, size_bytes - END_BYTES))
        digest.update(file.read(END_BYTES))
    return digest.hexdigest()
