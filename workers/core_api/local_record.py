"""The record of a run without a cluster, on disk: written line by line, read back to resume and to import."""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import ValidationError

from tenuto.kernel.clock import Clock
from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.directory import PARTIAL_PREFIX, DirectoryStore
from tenuto.schemas.base import Model
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.metrics import usable
from tenuto.schemas.record import GitState
from tenuto.schemas.reports import (
    CheckpointReport,
    DamageReport,
    DataReport,
    EnvironmentReport,
    LogsReport,
    MetricsReport,
    NoticeReport,
    ProgressReport,
    TrainingEndedReport,
    ValidationReport,
)
from tenuto.workers.connection.directives import Directive, DirectiveBox
from tenuto.workers.core_api.session import say
from tenuto.workers.errors import UserError

RUN_FILE = "run.json"
REPORTS_FILE = "reports.jsonl"
CODE_DIRECTORY = "code"
"""Directory of the script, and of modules that it imported from its own directory."""


class RunDescription(Model):
    """Description of a run."""

    format: Literal[1] = 1
    config: ExperimentConfig
    hyperparameters: dict[str, Any]
    seed: int
    started_us: int
    command: tuple[str, ...]
    tenuto_version: str
    python_version: str
    host: str
    given: dict[str, str] = {}
    """Values that `tenuto.init(hyperparameters=...)` set over those of the configuration: value as JSON, by path."""
    git: GitState | None = None
    trial_seed: int | None = None
    """Seed of the training. None: `seed` is, which is that of the experiment."""
    context_hash: str = ""
    """Hash of the packed model directory, whose files are all in `code`. Empty: `code` has only what was imported."""


class Started(Model):
    """A process began to write the record."""

    kind: Literal["started"] = "started"
    process: int


class Deleted(Model):
    """A checkpoint was deleted, because the configuration's `checkpoint_policy` does not keep it."""

    kind: Literal["deleted"] = "deleted"
    checkpoint_id: str


Body = (
    ValidationReport
    | CheckpointReport
    | TrainingEndedReport
    | DamageReport
    | ProgressReport
    | MetricsReport
    | LogsReport
    | EnvironmentReport
    | DataReport
    | NoticeReport
    | Started
    | Deleted
)


class ReportLine(Model):
    time_us: int
    body: Body


def read_run(directory: Path) -> RunDescription:
    """The run's description. Raises UserError."""
    try:
        return RunDescription.from_json((directory / RUN_FILE).read_bytes())
    except OSError as error:
        raise UserError(f"{directory} holds no record of a run: {RUN_FILE} cannot be read ({error.strerror}).") from None
    except ValidationError as error:
        raise UserError(f"{directory / RUN_FILE} is damaged: {error.errors()[0]['msg']}.") from None


def read_lines(directory: Path) -> Iterator[ReportLine]:
    """Complete lines; a last one that a killed process wrote only in part is no report. Raises UserError."""
    path = directory / REPORTS_FILE
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield ReportLine.from_json(line)
            except ValidationError as error:
                raise UserError(f"{path}:{number} is damaged: {error.errors()[0]['msg']}.") from None


def checkpoints_of(directory: Path) -> list[CheckpointReport]:
    """Checkpoints that are not deleted, oldest first."""
    found: dict[str, CheckpointReport] = {}
    for line in read_lines(directory):
        if isinstance(line.body, CheckpointReport):
            found[line.body.checkpoint_id] = line.body
        elif isinstance(line.body, Deleted):
            found.pop(line.body.checkpoint_id, None)
    stored = set(checkpoints.list_manifests(store_of(directory)))
    return [report for report in found.values() if report.checkpoint_id in stored]


def sweep(directory: Path) -> None:
    """Removes files that a killed process stored only in part, or stored and did not report."""
    store = store_of(directory)
    reported = {line.body.checkpoint_id for line in read_lines(directory) if isinstance(line.body, CheckpointReport)}
    for checkpoint_id in checkpoints.list_manifests(store):
        if checkpoint_id not in reported:
            checkpoints.delete(store, checkpoint_id)
    for path in store.root.rglob(f"{PARTIAL_PREFIX}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def store_of(directory: Path) -> DirectoryStore:
    return DirectoryStore(directory / "checkpoints")


class LocalReports:
    """Appends reports to the record, and reacts to a validation at full length, or to an early end, as the search would: the
    trial is over."""

    def __init__(
        self,
        directory: Path,
        description: RunDescription,
        box: DirectiveBox,
        clock: Clock,
        show: Callable[[Body], None] | None = None,
    ) -> None:
        self._directory, self._box, self._clock, self._show = directory, box, clock, show
        self._config = description.config
        self._length = description.config.searcher.max_length.value
        self._checkpoints: list[CheckpointReport] = checkpoints_of(directory)
        self._metric_at: dict[int, float] = {}
        self._lock = threading.Lock()
        self.starts = 1
        for line in read_lines(directory):
            self.starts += isinstance(line.body, Started)
            if isinstance(line.body, ValidationReport):
                self._note(line.body)
            elif isinstance(line.body, TrainingEndedReport):
                self._stop()
        self._file = self._open()
        self._write(Started(process=os.getpid()))

    def report(self, lane: Literal["tracker", "metrics", "logs"], *bodies: Model) -> None:
        with self._lock:  # checkpoints are reported by the thread that stores them
            for body in bodies:
                self._report(body)

    def _report(self, body: Model) -> None:
        assert isinstance(body, Body)
        if isinstance(body, LogsReport):
            for text in body.lines:
                say(text.text)
        if isinstance(body, NoticeReport):
            say(f"notice ({body.level}): {body.text}")
        if isinstance(body, ValidationReport) and body.batches in self._metric_at:
            return  # made again after a resume: one position counts once
        self._write(body)
        if self._show is not None:
            self._show(body)
        if isinstance(body, CheckpointReport):
            os.fsync(self._file.fileno())
            self._checkpoints.append(body)
        if isinstance(body, ValidationReport):
            self._note(body)
        if isinstance(body, TrainingEndedReport):
            self._stop()
        if isinstance(body, (CheckpointReport, ValidationReport)):
            self._delete_expendable()

    def flush(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _open(self) -> IO[bytes]:
        path = self._directory / REPORTS_FILE
        if path.exists():
            content = path.read_bytes()
            with path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
        return path.open("ab", buffering=0)

    def _write(self, body: Body) -> None:
        self._file.write(ReportLine(time_us=self._clock.now_us(), body=body).to_json() + b"\n")

    def _note(self, report: ValidationReport) -> None:
        self._metric_at[report.batches] = report.metrics.get(self._config.searcher.metric, math.nan)
        if report.length >= self._length:
            self._stop()

    def _stop(self) -> None:
        self._box.put(Directive("stop", self._length))

    def _delete_expendable(self) -> None:
        """Deletes checkpoints that `checkpoint_policy` does not keep; the latest is always kept, with `best` also that of the
        best validation."""
        if self._config.checkpoint_policy == "all":
            return
        keep = {self._checkpoints[-1].checkpoint_id} if self._checkpoints else set()
        if self._config.checkpoint_policy == "best" and (best := self._best()) is not None:
            keep.add(best.checkpoint_id)
        for report in [item for item in self._checkpoints if item.checkpoint_id not in keep]:
            self._write(Deleted(checkpoint_id=report.checkpoint_id))
            checkpoints.delete(store_of(self._directory), report.checkpoint_id)
            self._checkpoints.remove(report)

    def _best(self) -> CheckpointReport | None:
        sign = 1 if self._config.searcher.smaller_is_better else -1
        ranked = [
            (sign * value, item.batches, item) for item in self._checkpoints if usable(value := self._metric_at.get(item.batches))
        ]
        return min(ranked, key=lambda entry: entry[:2])[2] if ranked else None
