"""Results of trials. Owner: tracker. Stream: trial/<trial>."""

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
    """Path relative to the checkpoint's directory."""
    size_bytes: int = Field(ge=0)
    sha256: str


def files_hash(files: Iterable[CheckpointFile]) -> str:
    """SHA-256 over paths, sizes and contents of a checkpoint's files, independent of their order."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda item: item.path):
        digest.update(f"{len(file.path.encode())}:{file.path}:{file.size_bytes}:{file.sha256}\n".encode())
    return digest.hexdigest()


# A class of the record before `TrialEvent` has the fields which the worker's report has as well (`schemas/reports.py`).


class TrialEvent(EventData):
    OWNER: ClassVar[str] = "tracker"
    STREAM: ClassVar[str] = "trial"

    trial_id: str

    def stream_key(self) -> str:
        return self.trial_id


class Validation(Model):
    """Common fields of ValidationReported and the worker's report of it."""

    allocation_id: str
    batches: int = Field(ge=0)
    """Number of batches trained before the validation."""
    length: int = Field(ge=0)
    """The same length in the unit of the experiment's `searcher.max_length`, rounded down."""
    metrics: dict[str, float]


@event("ValidationReported")
class ValidationReported(Validation, TrialEvent):
    """The trial was validated."""


class Save(Model):
    """Common fields of CheckpointSaved and the worker's report of it."""

    allocation_id: str
    checkpoint_id: str
    batches: int = Field(ge=0)
    length: int = Field(ge=0)
    files: tuple[CheckpointFile, ...]
    size_bytes: int = Field(ge=0)


@event("CheckpointSaved")
class CheckpointSaved(Save, TrialEvent):
    location: str
    """Location in one of the operator's stores: `store://NAME/<experiment>/<trial>/manifests/<checkpoint>.json`."""
    breaks: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Reasons why the trial is not resumed or repeated exactly, as far as its worker had noticed."""


@event("CheckpointDeleted")
class CheckpointDeleted(TrialEvent):
    checkpoint_id: str
    reason: Reason


class Damage(Model):
    """Common fields of CheckpointDamaged and the worker's report of it."""

    allocation_id: str
    checkpoint_id: str
    reason: str
    """Name of the damaged file, and what is wrong with it."""
    resumed_from: str | None
    """Earlier checkpoint that the run goes on from instead. None: none can be used, so the run fails."""


@event("CheckpointDamaged")
class CheckpointDamaged(Damage, TrialEvent):
    """A run of the trial tried to resume from this checkpoint, but the stored files differ from those saved."""


class Progress(Model):
    """Common fields of TrialProgressed and the worker's report of it."""

    allocation_id: str
    batches: int = Field(ge=0)
    length: int = Field(ge=0)


@event("TrialProgressed")
class TrialProgressed(Progress, TrialEvent):
    """Progress of training, sent at most every `progress_seconds_min`. It is for people and for choosing cheap victims of a
    preemption; it decides nothing else."""


class LogMatch(Model):
    """Common fields of LogMatched and the worker's report of it."""

    allocation_id: str
    agent_id: str
    """Agent on which the line was printed."""
    pattern: str
    action: Literal["exclude_agent"]
    line: str
    """Beginning of the line."""


@event("LogMatched")
class LogMatched(LogMatch, TrialEvent):
    """A worker printed a line that matches one of the experiment's `log_policies`; `action` is carried out."""


ENDED_CHARACTERS_MAX = 500
"""Most characters of a reason for an early end: a sentence for people, which is recorded for ever."""


class Ended(Model):
    """Common fields of TrainingEnded and the worker's report of it."""

    allocation_id: str
    batches: int = Field(ge=0)
    """Number of batches trained, all in all."""
    length: int = Field(ge=0)
    """The same length in the unit of the experiment's `searcher.max_length`, rounded down."""
    said: str = Field(max_length=ENDED_CHARACTERS_MAX)
    """Reason that the trial's own code gave. Empty: none."""


@event("TrainingEnded")
class TrainingEnded(Ended, TrialEvent):
    """The trial's own code ended its training before the length that the search had asked for. It is not trained further: the
    search compares it by its last validation, and stops it as completed."""


Level = Literal["info", "warning", "error"]
NOTICE_CHARACTERS_MAX = 1_000
"""Most characters of a notice of model code: a message to people, which is recorded for ever."""


class ModelNotice(Model):
    """Common fields of NoticeReported and the worker's report of it."""

    allocation_id: str
    text: str = Field(min_length=1, max_length=NOTICE_CHARACTERS_MAX)
    """Words of the model code."""
    level: Level


@event("NoticeReported")
class NoticeReported(ModelNotice, TrialEvent):
    """The model code has something to say to people. Webhooks send it."""


class Straggler(Model):
    """Common fields of StragglerNoticed and the worker's report of it."""

    allocation_id: str
    rank: int = Field(ge=0)
    slots: int = Field(ge=1)
    """Number of ranks."""
    agent_id: str
    """Agent of the slow rank."""
    own_seconds: float = Field(gt=0)
    """Seconds that a step takes this rank, without the time it waits for others."""
    usual_seconds: float = Field(gt=0)
    """Median of the same seconds over the other ranks."""


@event("StragglerNoticed")
class StragglerNoticed(Straggler, TrialEvent):
    """A rank of this trial is slow and delays all others in every step. Recorded once per rank and run."""


@event("TrialFailed")
class TrialFailed(TrialEvent):
    """A worker of this trial failed. `final`: the trial is given up; otherwise it starts again from its checkpoint."""

    allocation_id: str
    error: str
    failures: int
    """Number of user errors of this trial so far, this one included."""
    final: bool
    invalid_hyperparameters: bool = False
    """True: the model code refused the hyperparameters (`tenuto.InvalidHyperparameters`), so the trial is replaced and does
    not count."""


@event("TrialFinished")
class TrialFinished(TrialEvent):
    """The trial was stopped by the search and none of its workers runs any more."""

    batches: int
    length: int
    checkpoint_id: str | None
    """Latest checkpoint of the trial. None: it has none."""


@event("ReportRefused")
class ReportRefused(TrialEvent):
    """A report was not recorded: its allocation is no longer current, or it contradicts the record."""

    allocation_id: str
    report: str
    reason: Reason


@event("EnvironmentRecorded")
class EnvironmentRecorded(TrialEvent):
    """A run of the trial has started in this environment."""

    allocation_id: str
    environment_hash: str
    environment: EnvironmentRecord | None
    """The environment, given once per experiment. None: an earlier event of the experiment with the same hash contains it."""


class DataUse(Model):
    """Common fields of DataRecorded and the worker's report of it."""

    allocation_id: str
    data: DataFingerprint
    changed_from: str | None = None
    """Previous fingerprint, recorded by this trial, its experiment or the parent experiment, if it differs. None: the same, or
    none was recorded."""


@event("DataRecorded")
class DataRecorded(DataUse, TrialEvent):
    """A run of the trial has started with this data."""
