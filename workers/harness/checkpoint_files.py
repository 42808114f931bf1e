"""Checkpoint directories: there whole or not at all, also after a power failure."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from tenuto.schemas.base import Model
from tenuto.schemas.config import Unit
from tenuto.schemas.events.trial import CheckpointFile
from tenuto.workers.harness.errors import UserError

READ_BYTES = 1 << 20
RECORD_FILE = "tenuto.json"
"""In each checkpoint: a CheckpointRecord."""


class CheckpointRecord(Model):
    """Whose checkpoint it is, its position, and the validation that was made there."""

    format: Literal[1] = 1
    experiment_id: int
    trial_id: str
    batches: int
    length: int
    unit: Unit
    hyperparameters: dict[str, Any]
    trial_seed: int
    context_hash: str
    validation: dict[str, float] | None
    """None: the position was not validated before it was saved."""


class CheckpointDamaged(UserError):
    """A recorded checkpoint that cannot be resumed from: deleted, changed or out of reach."""


def location_of(directory: Path) -> str:
    return directory.absolute().as_uri()


def directory_of(location: str) -> Path:
    """Raises UserError for anything but a `file://` location."""
    parts = urlsplit(location)
    if parts.scheme != "file":
        raise UserError(f"The checkpoint is at {location}, but this worker reads file:// locations only.")
    return Path(unquote(parts.path))


def write_checkpoint(parent: Path, checkpoint_id: str, fill: Callable[[Path], None]) -> tuple[Path, tuple[CheckpointFile, ...]]:
    """`fill` writes into a directory with a temporary name; it gets its own name when all of it is on disk.

    Raises OSError, and leaves nothing behind then. A directory of that name is replaced: it is left from a save that was never
    reported, because an allocation reports each position once.
    """
    parent.mkdir(parents=True, exist_ok=True)
    final = parent / checkpoint_id
    temporary = parent / f".{checkpoint_id}.partial"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        fill(temporary)
        files = tuple(_sync_file(path, temporary) for path in sorted(temporary.rglob("*")) if path.is_file())
        for directory in sorted((path for path in temporary.rglob("*") if path.is_dir()), reverse=True):
            _sync_directory(directory)
        _sync_directory(temporary)
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        _sync_directory(parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final, files


def _sync_file(path: Path, root: Path) -> CheckpointFile:
    digest = hashlib.sha256()
    size_bytes = 0
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
            size_bytes += len(block)
        os.fsync(file.fileno())
    return CheckpointFile(path=path.relative_to(root).as_posix(), size_bytes=size_bytes, sha256=digest.hexdigest())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
