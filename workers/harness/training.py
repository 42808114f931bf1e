"""The training loop: train to the next boundary, validate, save, report, obey directives. Knows no framework."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tenuto.kernel.clock import Clock
from tenuto.kernel.storage.manifest import Manifest
from tenuto.kernel.storage.store import StoreError
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.assignments import Action, Assignment, SourceCheckpoint
from tenuto.schemas.reports import (
    CheckpointReport,
    DamageReport,
    ProgressReport,
    TrainingEndedReport,
    ValidationReport,
)
from tenuto.workers.checkpoints.files import RECORD_FILE, CheckpointRecord
from tenuto.workers.checkpoints.location import Place
from tenuto.workers.checkpoints.restoring import restore
from tenuto.workers.checkpoints.writer import UNDER_WAY_MAX, CheckpointWriter, Fill, Position
from tenuto.workers.connection.directives import AgentGone, DirectiveBox
from tenuto.workers.errors import UserError, metric_warning
from tenuto.workers.harness import early_end
from tenuto.workers.harness.background_saves import BackgroundSaves
from tenuto.workers.harness.batch_sizes import refuse_batch_rules
from tenuto.workers.harness.end_wish import EndWish
from tenuto.workers.harness.metric_points import MetricPoints
from tenuto.workers.harness.report_ids import ids_of
from tenuto.workers.harness.reporter import Reports
from tenuto.workers.harness.resuming import load_checkpoint
from tenuto.workers.harness.schedule import Schedule, Shorten
from tenuto.workers.harness.trainer import Trainer
from tenuto.workers.launch.gang import Gang, GangBox

PROGRESS_SECONDS_MIN = 5.0
"""Shortest time between two progress reports. They decide nothing: people, and the choice of cheap victims, need no more."""


def say(text: str) -> None:
    """Prints a line for the user in the trial's log."""
    print(f"tenuto: {text}", file=sys.stderr, flush=True)


class TrainingLoop:
    """One allocation's training, from resuming to leaving."""

    def __init__(
        self,
        assignment: Assignment,
        trainer: Trainer,
        box: DirectiveBox,
        reporter: Reports,
        checkpoint_directory: Path,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
        gang: Gang | None = None,
        stores: Stores | None = None,
        shorten: Shorten | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        """`gang`: this process is one of several ranks, all of which call everything at the same positions. Rank 0 saves and
        reports; the others give it their parts of a checkpoint. `schedule`: in the place of the configuration's."""
        self._assignment, self._trainer, self._box, self._reporter = assignment, trainer, box, reporter
        self._clock, self._sleep, self._ids = clock, sleep, ids_of(assignment)
        self._gang, self._follows = gang, gang is not None and not gang.leads
        self._save_asked = False
        try:
            self._place = Place(assignment, checkpoint_directory, stores)
        except StoreError as error:
            raise UserError(f"The checkpoints' store cannot be opened: {error}") from error
        if not trainer.has_batch_rules:
            refuse_batch_rules(assignment)
        schedule = schedule or Schedule.of(assignment.config, trainer.epoch_batches)
        self._schedule = schedule if shorten is None else shorten(schedule)
        trainer.check_length(self._schedule.full_batches(assignment.config.searcher.max_length.value))
        self._validation: dict[str, float] | None = None
        self._validated_at: int | None = None
        self._saved_at: int | None = None
        """Position of the last checkpoint that is stored and reported."""
        self._saving: dict[str, int] = {}
        """Positions of checkpoints given to the writer, by id."""
        self._joined: tuple[ValidationReport | TrainingEndedReport, ...] = ()
        """Reports to be sent with the next checkpoint's report, in one call, so that a search that reacts sees all at once."""
        self._wish = EndWish(trainer, box, gang)
        self._points = MetricPoints(self._ids, reporter, clock)
        self._saves = BackgroundSaves(assignment.config.checkpoint_storage, self._say)
        self._progress_sent_at = self._saved_clock = clock.monotonic()

    def run(self) -> Action:
        """Trains; returns the action by which the agent wanted this worker to leave. Raises AgentGone, UserError, or errors of
        the user's code."""
        with restore(self._assignment, self._place, self._say, self._report_damage, self._sleep) as restored:
            if restored is not None:
                self._resume(restored.source, restored.directory)
            # Another experiment's checkpoint may be deleted at any time, so it cannot be the base of a save.
            own = restored is not None and not restored.source.weights_only
            self._writer = self._open_writer(restored.base if restored is not None and own else None)
        try:
            return self._train()
        except AgentGone:
            raise
        except BaseException:
            with contextlib.suppress(Exception):  # the error that is under way says more
                self._writer.wait()  # what was reached before is worth recording
            raise

    def _say(self, text: str) -> None:
        if not self._follows:
            say(text)

    def _report_damage(self, body: DamageReport) -> None:
        self._reporter.report("tracker", body)

    def _open_writer(self, base: Manifest | None) -> CheckpointWriter:
        def report(body: CheckpointReport) -> None:
            joined, self._joined = self._joined, ()
            self._reporter.report("tracker", body, *joined)

        return CheckpointWriter(self._assignment, self._place, report, say, base=base, sleep=self._sleep)

    def _train(self) -> Action:
        while True:
            directive = self._box.current
            if directive.leave:
                self._leave(directive.action)
                return directive.action
            target_batches = self._schedule.target_batches(directive.target_length)
            if self._trainer.batches >= target_batches:
                self._validate_and_save(at_target=True)
                self._due_by_the_clock()  # what the ranks were to save here is saved
                if self._wish.reason is not None:
                    return self._end(self._wish.reason)
                self._box.wait_change(directive)
                continue
            trainer = self._trainer
            stop = self._schedule.next_stop(trainer.batches, target_batches, trainer.step_batches, trainer.epoch_batches)
            self._trainer.train(stop, lambda seen=directive: self._wish.interrupts(seen))  # type: ignore[misc]
            self._after_training(target_batches)
            if self._wish.reason is not None and self._box.current.action not in ("kill", "stop"):
                return self._end(self._wish.reason)

    def _end(self, said: str) -> Action:
        """Ends a training whose own code asked for it, before the length that the search asked for. It is reported with its
        checkpoint and its validation, so that a worker that is killed has either told all or trains on."""
        batches = self._trainer.batches
        ended = early_end.ended_report(self._assignment, batches, self._schedule.length(batches), said)
        self._validate_and_save(at_target=True, then=(ended,))
        self._say(early_end.sentence(batches, said, self._validated_at))
        self._reporter.flush()
        directive = self._box.current
        while not directive.leave:  # what the search asks for until it knows is not trained
            directive = self._box.wait_change(directive)
        self._leave(directive.action)
        return directive.action

    def _resume(self, source: SourceCheckpoint, directory: Path) -> None:
        record = load_checkpoint(self._trainer, source, directory, self._say)
        if record is None or record.trial_id != self._assignment.trial_id:
            # A checkpoint of another trial, from which this one begins: this trial has neither it nor its validation. What is
            # best may be here, and the other experiment may be deleted.
            return
        self._saved_at = source.batches
        if record.validation is not None:
            # The previous worker may have died between the two reports of that position; a repeated report changes nothing.
            self._validation, self._validated_at = record.validation, source.batches
            self._report_validation(source.batches, record.validation)

    def _after_training(self, target_batches: int) -> None:
        batches, step_batches, schedule = self._trainer.batches, self._trainer.last_step_batches, self._schedule
        due = self._due_by_the_clock()
        if batches >= target_batches or schedule.validates_at(batches, step_batches):
            self._validate_and_save(at_target=batches >= target_batches)
        else:
            if schedule.logs_at(batches, step_batches):
                self._take_metrics()  # first: what is not taken yet goes into the checkpoint
            if schedule.saves_at(batches, step_batches) or due:
                self._save()
        self._note_stored()
        if self._clock.monotonic() - self._progress_sent_at >= PROGRESS_SECONDS_MIN:
            self._report_progress()

    def _due_by_the_clock(self) -> bool:
        minutes = self._assignment.config.checkpoint_period_minutes
        due = minutes is not None and self._clock.monotonic() - self._saved_clock >= 60 * minutes
        if not isinstance(self._box, GangBox):
            return due
        if due and not self._follows and not self._save_asked:  # each rank has a clock of its own: rank 0's counts
            self._save_asked = True
            self._box.ask_save()
        agreed = self._box.take_save()
        self._save_asked = self._save_asked and not agreed
        return agreed

    def _validate_and_save(self, at_target: bool, then: tuple[TrainingEndedReport, ...] = ()) -> None:
        """Validates and saves. The checkpoint is reported first: a search that reacts to the validation may rely on it. Before
        the target, both are reported when the checkpoint is stored, while training goes on. `then`: reported after them."""
        batches = self._trainer.batches
        known = self._validated_at == batches
        if known and not then:
            return
        self._take_metrics()
        if not known:
            self._validation, self._validated_at = self._trainer.validate(), batches
            self._warn_of_missing_metric()
            self._wish.meet()
        validation = self._validation or {}
        if at_target:
            self._writer.wait()  # an earlier checkpoint must not take the validation along
            self._joined = (*(() if known else (self._validation_report(batches, validation),)), *then)
            self._save_now()
            self._report_joined()
        else:
            self._save(then=lambda: self._report_validation(batches, validation))
        self._points.send()  # this may be a long wait

    def _warn_of_missing_metric(self) -> None:
        """Warns once per position in the trial's log about a missing metric, because the search goes on without this trial."""
        if self._validation is not None and not self._follows:
            warning = metric_warning(self._assignment.config.searcher.metric, self._validation, self._trainer.batches)
            if warning:
                say(warning)

    def _leave(self, action: Action) -> None:
        if action in ("preempt", "pause"):
            if not self._save_now(leaving=True):
                raise UserError(f"The checkpoint could not be saved in {self._place.store.url}; free space there, or repair it.")
        elif action != "kill":
            self._writer.wait()  # what is under way, with the validation that is reported after it
        self._saves.tell_skipped()
        if action != "kill":
            self._points.send()
            self._reporter.flush()

    def _save(self, then: Callable[[], None] | None = None) -> None:
        """Saves and reports a position once. Returns when the state is copied; without a copy, when it is stored. `then` is
        called after the report, or when the checkpoint was given up, perhaps by another thread; None: nothing hangs on it."""
        if self._gang is not None and self._collect(then):
            return
        if self._trainer.batches in self._saving.values():  # under way already: no batch was trained since
            self._writer.wait()
            self._note_stored()
        way = "wait" if self._is_saved() else self._saves.way(self._trainer, self._writer, optional=then is None)
        if way == "wait":
            self._save_now()
            if then is not None:
                then()
            return
        if way == "skip":
            self._saved_clock = self._clock.monotonic()
            return
        position = self._position()
        self._points.send()  # a trial that resumes from here does not make them again
        self._saving[position.checkpoint_id] = position.batches
        self._saved_clock = self._clock.monotonic()
        before_max = 0 if self._trainer.copies_on_disk else UNDER_WAY_MAX - 1
        self._writer.save(position, lambda: self._filler(self._trainer.snapshot()), then, before_max=before_max)

    def _save_now(self, leaving: bool = False) -> bool:
        """Saves, and returns when the checkpoint is stored and reported. False: the store did not accept it, and the user was
        told."""
        if self._gang is not None and self._collect(None):
            return True
        if leaving:
            self._writer.leave_at(self._trainer.batches)
        self._writer.wait()
        self._note_stored()
        if self._is_saved():
            return True
        position = self._position()
        self._points.send()
        self._saving[position.checkpoint_id] = position.batches
        self._saved_clock = self._clock.monotonic()
        stored = self._writer.save_now(position, lambda: self._filler(self._trainer.save), leaving=leaving)
        self._note_stored()
        return stored

    def _collect(self, then: Callable[[], None] | None) -> bool:
        """Collects the parts of a checkpoint; True if another rank does the rest."""
        self._trainer.collect()
        if self._follows:
            self._saved_at = self._trainer.batches
            if then is not None:
                then()
        return self._follows

    def _is_saved(self) -> bool:
        return self._saved_at == self._trainer.batches or self._trainer.batches == 0  # batch 0 follows from the seed

    def _position(self) -> Position:
        batches = self._trainer.batches
        return Position(f"{self._assignment.allocation_id}-{batches}", batches, self._schedule.length(batches))

    def _note_stored(self) -> None:
        for checkpoint_id in self._writer.take_stored():
            self._saved_at = self._saving.pop(checkpoint_id)
            self._trainer.saved(checkpoint_id)

    def _filler(self, fill: Fill) -> Fill:
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

        def write(directory: Path) -> None:
            (directory / RECORD_FILE).write_bytes(record.to_json() + b"\n")
            fill(directory)

        return write

    def _report_joined(self) -> None:
        """Reports a validation that no checkpoint's report has taken along, because the position was saved before, or the
        checkpoint was given up."""
        joined, self._joined = self._joined, ()
        if joined:
            self._reporter.report("tracker", *joined)

    def _report_validation(self, batches: int, metrics: dict[str, float]) -> None:
        self._reporter.report("tracker", self._validation_report(batches, metrics))

    def _validation_report(self, batches: int, metrics: dict[str, float]) -> ValidationReport:
        return ValidationReport(**self._ids, batches=batches, length=self._schedule.length(batches), metrics=metrics)

    def _report_progress(self) -> None:
        self._progress_sent_at = self._clock.monotonic()
        batches = self._trainer.batches
        report = ProgressReport(**self._ids, batches=batches, length=self._schedule.length(batches))
        self._reporter.report("tracker", report)

    def _take_metrics(self) -> None:
        self._points.add(self._trainer.batches, self._trainer.take_metrics())
