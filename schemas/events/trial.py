"""What trials achieved. Owner: tracker. Stream: trial/<trial>."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import ClassVar, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.registry import EventData, Reason, event
from tenuto.schemas.record import DataFingerprint, EnvironmentRecord


class CheckpointFile(Model):
    path: str
    """Relative to the checkpoint's directory."""
    size_bytes: int = Field(ge=0)
    sha256: str


def files_hash(files: Iterable[CheckpointFile]) -> str:
    """SHA-256 over paths, sizes and contents of a checkpoint's files, whatever their order."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda item: item.path):
        digest.update(f"{len(file.path.encode())}:{file.path}:{file.size_bytes}:{file.sha256}\n".encode())
    return digest.hexdigest()


class Trial(EventData):
    OWNER: ClassVar[str] = "tracker"
    STREAM: ClassVar[str] = "trial"

    trial_id: str

    def stream_key(self) -> str:
        return self.trial_id


@event("ValidationReported")
class ValidationReported(Trial):
    allocation_id: str
    batches: int = Field(ge=0)
    """Batches trained when it was measured."""
    length: int = Field(ge=0)
    """The same in the unit of the experiment's `searcher.max_length`, rounded down."""
    metrics: dict[str, float]


@event("CheckpointSaved")
class CheckpointSaved(Trial):
    allocation_id: str
    checkpoint_id: str
    batches: int
    length: int
    files: tuple[CheckpointFile, ...]
    size_bytes: int
    location: str
    """`store://NAME/<experiment>/<trial>/manifests/<checkpoint>.json`: in which of the operator's stores it is."""
    breaks: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Why the trial is not resumed or repeated exactly, as far as its worker had noticed."""


@event("CheckpointDeleted")
class CheckpointDeleted(Trial):
    checkpoint_id: str
    reason: Reason


@event("CheckpointDamaged")
class CheckpointDamaged(Trial):
    """A run of the trial was to resume from this checkpoint, and what is stored is not what was saved."""

    allocation_id: str
    checkpoint_id: str
    reason: str
    """Which file, and what is wrong with it."""
    resumed_from: str | None
    """The earlier checkpoint that the run goes on from instead. None: none can be used, so the run fails."""


@event("TrialProgressed")
class TrialProgressed(Trial):
    """Sent at most every `progress_seconds_min`, for people and for choosing cheap victims; it decides nothing."""

    allocation_id: str
    batches: int
    length: int


@event("LogMatched")
class LogMatched(Trial):
    """A worker printed a line that matches one of the experiment's `log_policies`; what follows is `action`."""

    allocation_id: str
    agent_id: str
    """Where it was printed."""
    pattern: str
    action: Literal["exclude_agent"]
    line: str
    """Its beginning."""


@event("StragglerNoticed")
class StragglerNoticed(Trial):
    """A rank of this trial is slow, and holds up the others in every step. Said once per rank and run."""

    allocation_id: str
    rank: int = Field(ge=0)
    slots: int = Field(ge=1)
    """Ranks in all."""
    agent_id: str
    """Where it runs."""
    own_seconds: float = Field(gt=0)
    """What a step takes it, without the time that it waits for others."""
    usual_seconds: float = Field(gt=0)
    """The same of the other ranks: their median."""


@event("TrialFailed")
class TrialFailed(Trial):
    """A worker of this trial failed. `final` says whether the trial is given up or starts again from its checkpoint."""

    allocation_id: str
    error: str
    failures: int
    """User errors of this trial so far, this one included."""
    final: bool
    invalid_hyperparameters: bool = False
    """The model code refused the hyperparameters (`tenuto.InvalidHyperparameters`): the trial is replaced, at no cost."""


@event("TrialFinished")
class TrialFinished(Trial):
    """The trial was stopped by the search and none of its workers runs any more."""

    batches: int
    length: int
    checkpoint_id: str | None
    """Its latest checkpoint."""


@event("ReportRefused")
class ReportRefused(Trial):
    """A report was not recorded: its allocation is no longer current, or it contradicts the record."""

    allocation_id: str
    report: str
    reason: Reason


@event("EnvironmentRecorded")
class EnvironmentRecorded(Trial):
    """A run of the trial has started in this environment."""

    allocation_id: str
    environment_hash: str
    environment: EnvironmentRecord | None
    """Given once per experiment; None: an earlier event of the experiment with the same hash has it."""


@event("DataRecorded")
class DataRecorded(Trial):
    """A run of the trial has started with this data."""

    allocation_id: str
    data: DataFingerprint
    changed_from: str | None = None
    """The fingerprint recorded before, by this trial, this experiment or the one it was made from, if it was another."""
