"""The manifest of a checkpoint: which files it has, and which blobs of the store hold them."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.trial import CheckpointFile

MANIFESTS = "manifests"
BLOBS = "blobs"
MANIFEST_BYTES_MAX = 64 << 20
"""Some 300,000 files; a checkpoint with more should pack them."""


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f"{path!r} is not a path inside the checkpoint")
    return path


def _blob(key: str) -> str:
    if not key.startswith(f"{BLOBS}/") or key.count("/") != 1:
        raise ValueError(f"{key!r} is not a blob")
    return key


class StoredFile(Model):
    path: Annotated[str, AfterValidator(_inside)]
    """Relative to the checkpoint's directory, with `/`."""
    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    blob: Annotated[str, AfterValidator(_blob)]
    """Its key below the trial's prefix."""

    @property
    def recorded(self) -> CheckpointFile:
        return CheckpointFile(path=self.path, size_bytes=self.size_bytes, sha256=self.sha256)


class Manifest(Model):
    format: Literal[1] = 1
    checkpoint_id: str
    files: tuple[StoredFile, ...]
    """By path."""

    @property
    def recorded(self) -> tuple[CheckpointFile, ...]:
        """As they stand in the record."""
        return tuple(file.recorded for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def manifest_key(checkpoint_id: str) -> str:
    return f"{MANIFESTS}/{checkpoint_id}.json"


def blob_key(sha256: str, checkpoint_id: str) -> str:
    """Named by content, and by the checkpoint that stored it first. Without the second part a blob could come back under the
    same name while its deletion is under way, and be deleted with it; so no key is ever written for two checkpoints."""
    return f"{BLOBS}/{sha256}.{checkpoint_id}"


def writer_of(key: str) -> str:
    """The checkpoint that a blob or a manifest was stored for."""
    name = key.rpartition("/")[2]
    return name.removesuffix(".json") if key.startswith(f"{MANIFESTS}/") else name.partition(".")[2]


def sha256_of(path: Path) -> str:
    """Raises OSError."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
