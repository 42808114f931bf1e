"""The training loop: train to the next boundary, validate, save, report, obey. Knows no framework."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from tenuto.kernel.clock import Clock
from tenuto.schemas.assignments import Action, Assignment
from tenuto.schemas.reports import CheckpointReport, MetricPoint, MetricsReport, ProgressReport, ValidationReport
from tenuto.workers.harness.checkpoint_files import (
    RECORD_FILE,
    CheckpointDamaged,
    CheckpointRecord,
    directory_of,
    location_of,
    write_checkpoint,
)
from tenuto.workers.harness.directives import DirectiveBox
from tenuto.workers.harness.errors import UserError
from tenuto.workers.harness.reporter import Reporter
from tenuto.workers.harness.schedule import Schedule
from tenuto.workers.harness.trainer import Trainer

PROGRESS_SECONDS_MIN = 5.0
"""Progress decides nothing: people and the choice of cheap victims need no more."""
METRICS_SECONDS_MIN = 1.0
METRICS_POINTS_MAX = 100
"""Points of quick trials share a report: at most one a second, or one per hundred points."""
SAVE_TRIES_MAX = 3
"""At a boundary: a full disk rarely clears within seconds, and training need not wait for it."""
LEAVING_SAVE_TRIES_MAX = 60
"""When leaving: what is not saved now is trained again. The agent's grace period usually ends it first."""
SAVE_PAUSE_SECONDS_MAX = 10.0


def say(text: str) -> None:
    """A line to the user in the trial's log."""
    print(f"tenuto: {text}", file=sys.stderr, flush=True)


class TrainingLoop:
    """One allocation's training, from resume to leaving."""

    def __init__(
        self,
        assignment: Assignment,
        trainer: Trainer,
        box: DirectiveBox,
        reporter: Reporter,
        checkpoint_directory: Path,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._assignment, self._trainer, self._box, self._reporter = assignment, trainer, box, reporter
        self._checkpoint_directory, self._clock, self._sleep = checkpoint_directory, clock, sleep
        self._schedule = Schedule.of(assignment.config, trainer.epoch_batches)
        self._validation: dict[str, float] | None = None
        self._validated_at: int | None = None
        self._saved_at: int | None = None
        self._points: list[MetricPoint] = []
        self._points_sent_at = self._progress_sent_at = clock.monotonic()

    def run(self) -> Action:
        """Returns the action by which the agent wanted this worker to leave. Raises AgentGone, UserError, or what the
        user's code raises."""
        self._resume()
        while True:
            directive = self._box.current
            if directive.leave:
                self._leave(directive.action)
                return directive.action
            target_batches = self._schedule.target_batches(directive.target_length)
            if self._trainer.batches >= target_batches:
                self._validate_and_save()
                self._box.wait_change(directive)
                continue
            stop = self._schedule.next_stop(self._trainer.batches, target_batches)
            self._trainer.train(stop, lambda seen=directive: self._box.differs(seen))  # type: ignore[misc]
            self._after_training(target_batches)

    def _resume(self) -> None:
        source = self._assignment.checkpoint
        if source is None:
            return
        directory = directory_of(source.location)
        try:
            record = CheckpointRecord.from_json((directory / RECORD_FILE).read_bytes())
            self._trainer.load(directory)
        except (OSError, ValidationError) as error:
            raise CheckpointDamaged(f"checkpoint {source.checkpoint_id} cannot be read: {error}") from error
        if self._trainer.batches != source.batches:
            raise CheckpointDamaged(
                f"checkpoint {source.checkpoint_id} was recorded at batch {source.batches}, "
                f"but holds batch {self._trainer.batches}."
            )
        self._saved_at = source.batches
        say(f"resumed from checkpoint {source.checkpoint_id} at batch {source.batches}")
        if record.validation is not None:
            # The worker before may have died between the two reports of that position; a repeated one changes nothing.
            self._validation, self._validated_at = record.validation, source.batches
            self._report_validation()

    def _after_training(self, target_batches: int) -> None:
        batches, schedule = self._trainer.batches, self._schedule
        if batches >= target_batches or schedule.validates_at(batches):
            self._validate_and_save()
        else:
            if schedule.logs_at(batches):
                self._take_metrics()  # first: what is not taken yet goes into the checkpoint
            if schedule.saves_at(batches):
                self._save(SAVE_TRIES_MAX)
        if self._clock.monotonic() - self._progress_sent_at >= PROGRESS_SECONDS_MIN:
            self._report_progress()

    def _validate_and_save(self) -> None:
        """The checkpoint is reported first: a search that reacts to the validation may count on it."""
        batches = self._trainer.batches
        if self._validated_at == batches:
            return
        self._take_metrics()
        self._validation = self._trainer.validate()
        self._validated_at = batches
        self._warn_of_missing_metric()
        self._save(SAVE_TRIES_MAX)
        self._report_validation()
        self._send_points()  # this may be a long wait

    def _warn_of_missing_metric(self) -> None:
        """Said once per position in the trial's log, because the search goes on without this trial."""
        metric, found = self._assignment.config.searcher.metric, self._validation
        if found is None:
            return
        if metric not in found:
            say(
                f"searcher.metric is {metric!r}, but validation reports {', '.join(sorted(found)) or 'nothing'}: "
                "this trial counts as the worst. Return that metric, or change searcher.metric."
            )
        elif not math.isfinite(found[metric]):
            say(
                f"{metric} is {found[metric]} at batch {self._trainer.batches}: this trial counts as the worst. "
                "Look at its training metrics; a smaller learning rate is the usual cure."
            )

    def _leave(self, action: Action) -> None:
        if action in ("preempt", "pause") and not self._save(LEAVING_SAVE_TRIES_MAX):
            raise UserError(f"The checkpoint could not be saved under {self._checkpoint_directory}; free space there.")
        if action != "kill":
            self._send_points()
            self._reporter.flush()

    def _save(self, tries_max: int) -> bool:
        """False: the disk did not take it, and the user was told. A position is saved and reported once."""
        trainer = self._trainer
        if self._saved_at == trainer.batches or trainer.batches == 0:
            return True  # batch 0 follows from the seed
        checkpoint_id = f"{self._assignment.allocation_id}-{trainer.batches}"
        for attempt in range(1, tries_max + 1):
            try:
                directory, files = write_checkpoint(self._checkpoint_directory, checkpoint_id, self._fill)
                break
            except OSError as error:
                pause = min(2.0 ** (attempt - 1), SAVE_PAUSE_SECONDS_MAX)
                more = (
                    f"next try in {pause:.0f} s"
                    if attempt < tries_max
                    else "training goes on without it, free or repair that storage"
                )
                say(
                    f"the checkpoint at batch {trainer.batches} could not be saved under {self._checkpoint_directory} "
                    f"({error.strerror or error}); {more}"
                )
                if attempt == tries_max:
                    return False
                self._sleep(pause)
        self._saved_at = trainer.batches
        self._send_points()  # a trial that resumes from here does not make them again
        self._reporter.report(
            "tracker",
            CheckpointReport(
                trial_id=self._assignment.trial_id,
                allocation_id=self._assignment.allocation_id,
                checkpoint_id=checkpoint_id,
                batches=trainer.batches,
                length=self._schedule.length(trainer.batches),
                files=files,
                size_bytes=sum(file.size_bytes for file in files),
                location=location_of(directory),
            ),
        )
        trainer.saved(checkpoint_id)
        return True

    def _fill(self, directory: Path) -> None:
        batches = self._trainer.batches
        record = CheckpointRecord(
            experiment_id=self._assignment.experiment_id,
            trial_id=self._assignment.trial_id,
            batches=batches,
            length=self._schedule.length(batches),
            unit=self._assignment.config.searcher.max_length.unit,
            hyperparameters=self._assignment.hyperparameters,
            trial_seed=self._assignment.trial_seed,
            context_hash=self._assignment.context_hash,
            validation=self._validation if self._validated_at == batches else None,
        )
        (directory / RECORD_FILE).write_bytes(record.to_json() + b"\n")
        self._trainer.save(directory)

    def _report_validation(self) -> None:
        assert self._validation is not None
        assert self._validated_at is not None
        self._reporter.report(
            "tracker",
            ValidationReport(
                trial_id=self._assignment.trial_id,
                allocation_id=self._assignment.allocation_id,
                batches=self._validated_at,
                length=self._schedule.length(self._validated_at),
                metrics=self._validation,
            ),
        )

    def _report_progress(self) -> None:
        self._progress_sent_at = self._clock.monotonic()
        batches = self._trainer.batches
        self._reporter.report(
            "tracker",
            ProgressReport(
                trial_id=self._assignment.trial_id,
                allocation_id=self._assignment.allocation_id,
                batches=batches,
                length=self._schedule.length(batches),
            ),
        )

    def _take_metrics(self) -> None:
        metrics = self._trainer.take_metrics()
        if metrics:
            self._points.append(MetricPoint(batches=self._trainer.batches, time_us=self._clock.now_us(), metrics=metrics))
        waited = self._clock.monotonic() - self._points_sent_at
        if waited >= METRICS_SECONDS_MIN or len(self._points) >= METRICS_POINTS_MAX:
            self._send_points()

    def _send_points(self) -> None:
        self._points_sent_at = self._clock.monotonic()
        if self._points:
            self._reporter.report(
                "metrics",
                MetricsReport(
                    trial_id=self._assignment.trial_id,
                    allocation_id=self._assignment.allocation_id,
                    points=tuple(self._points),
                ),
            )
            self._points.clear()
