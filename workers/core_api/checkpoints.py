"""Checkpoints of a script: directories that it fills itself, there whole or not at all."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tenuto.schemas.reports import CheckpointReport
from tenuto.workers.core_api.session import Session, say
from tenuto.workers.harness.checkpoint_files import (
    RECORD_FILE,
    CheckpointDamaged,
    CheckpointRecord,
    directory_of,
    location_of,
    write_checkpoint,
)
from tenuto.workers.harness.errors import UserError

METADATA_FILE = "tenuto_metadata.json"
"""In each checkpoint of a script: what it gave as `metadata`."""
STORE_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS})
"""The store's failures. Training goes on without that checkpoint; any other error is one of the script."""


@dataclass(frozen=True)
class Checkpoint:
    id: str
    steps: int
    """Steps trained when it was saved."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    location: str = ""


class Checkpoints:
    """`run.checkpoint`."""

    def __init__(self, session: Session, length_of: Callable[[int], int], validation_at: Callable[[int], Any]) -> None:
        self._session, self._length_of, self._validation_at = session, length_of, validation_at
        self._latest: Checkpoint | None = None
        self._ids: set[str] = set()
        self.resumed_validation: tuple[int, dict[str, float]] | None = None
        """(steps, metrics) of the validation that was made where the trial resumes."""
        if session.assignment.checkpoint is not None:
            self._read_source()

    @property
    def latest(self) -> Checkpoint | None:
        """The trial's newest checkpoint: what a new process resumes from. None: there is none yet."""
        return self._latest

    @contextmanager
    def restore(self) -> Iterator[Path]:
        """The files of `latest`, for reading. Raises UserError where there is no checkpoint."""
        if self._latest is None:
            raise UserError("there is no checkpoint to restore; ask `if run.checkpoint.latest is not None` first.")
        directory = directory_of(self._latest.location)
        if not directory.is_dir():
            raise CheckpointDamaged(f"checkpoint {self._latest.id} is gone: there is no directory {directory}.")
        yield directory

    @contextmanager
    def save(self, steps: int, metadata: Mapping[str, Any] | None = None) -> Iterator[Path]:
        """An empty directory for the script's files. It becomes a checkpoint when the block ends; if the block raises, it
        leaves no trace.

        `metadata` is any JSON. A store that is full or out of reach is told and training goes on, except when the trial is
        leaving: then it raises UserError, because what was trained would be lost.
        """
        session = self._session
        text = _metadata_text(metadata or {})
        checkpoint_id = self._new_id(steps)
        length = self._length_of(steps)
        staging = session.checkpoint_directory / f".{checkpoint_id}.filling"
        try:
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
            yield staging
            record = CheckpointRecord(
                experiment_id=session.assignment.experiment_id,
                trial_id=session.assignment.trial_id,
                batches=steps,
                length=length,
                unit=session.assignment.config.searcher.max_length.unit,
                hyperparameters=session.assignment.hyperparameters,
                trial_seed=session.assignment.trial_seed,
                context_hash=session.assignment.context_hash,
                validation=self._validation_at(steps),
            )
            (staging / RECORD_FILE).write_bytes(record.to_json() + b"\n")
            (staging / METADATA_FILE).write_text(text + "\n")
            directory, files = write_checkpoint(session.checkpoint_directory, checkpoint_id, lambda into: _move(staging, into))
        except OSError as error:
            if error.errno not in STORE_FULL:
                raise
            reason = f"checkpoint at step {steps} could not be saved under {session.checkpoint_directory}: {error}"
            if session.box.current.leave:
                raise UserError(f"{reason}; free space there.") from error
            say(f"{reason}; training goes on without it")
            return
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        self._ids.add(checkpoint_id)
        self._latest = Checkpoint(checkpoint_id, steps, json.loads(text), location_of(directory))
        session.reports.report(
            "tracker",
            CheckpointReport(
                trial_id=session.assignment.trial_id,
                allocation_id=session.assignment.allocation_id,
                checkpoint_id=checkpoint_id,
                batches=steps,
                length=length,
                files=files,
                size_bytes=sum(file.size_bytes for file in files),
                location=location_of(directory),
            ),
        )

    def _new_id(self, steps: int) -> str:
        """One position may be saved twice: at the end of an epoch, and again because the trial leaves there."""
        base = f"{self._session.assignment.allocation_id}-{steps}"
        number = 1
        while (checkpoint_id := base if number == 1 else f"{base}-{number}") in self._ids:
            number += 1
        return checkpoint_id

    def _read_source(self) -> None:
        source = self._session.assignment.checkpoint
        assert source is not None
        directory = directory_of(source.location)
        try:
            record = CheckpointRecord.from_json((directory / RECORD_FILE).read_bytes())
            metadata_file = directory / METADATA_FILE
            metadata = json.loads(metadata_file.read_text()) if metadata_file.exists() else {}
        except (OSError, ValidationError, ValueError) as error:
            raise CheckpointDamaged(f"checkpoint {source.checkpoint_id} cannot be read: {error}") from error
        self._latest = Checkpoint(source.checkpoint_id, source.batches, metadata, source.location)
        if record.validation is not None:
            self.resumed_validation = (source.batches, record.validation)


def _metadata_text(metadata: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(metadata), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"a checkpoint's metadata must be JSON: {error}; save other values as files.") from None


def _move(source: Path, into: Path) -> None:
    for path in source.iterdir():
        path.rename(into / path.name)
