"""`Run`: a training script's interface to its trial."""

from __future__ import annotations

import contextlib
import copy
import operator
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Literal, Self

from tenuto.schemas.events.trial import Level
from tenuto.schemas.reports import LogLine, LogsReport, MetricPoint, MetricsReport, ProgressReport, ValidationReport
from tenuto.workers.core_api.checkpoints import Checkpoints
from tenuto.workers.core_api.lengths import ScriptLengths
from tenuto.workers.core_api.operations import Operation, numbers_of
from tenuto.workers.core_api.periods import Periods
from tenuto.workers.core_api.session import Session, say
from tenuto.workers.core_api.validations import Validations
from tenuto.workers.errors import UserError
from tenuto.workers.harness import determined_names, early_end, notifier

PROGRESS_SECONDS_MIN = 5.0
"""Shortest time between two progress reports. They decide nothing: people, and the choice of cheap victims, need no more."""
POINTS_SECONDS_MIN = 1.0
POINTS_MAX = 100
"""Points of training metrics that share a report: at most one report a second, or one per hundred points."""
ALERT_CHARACTERS_MAX = 4_000
"""Most characters of an alert: it is a message to users, not a file."""


class Run(Periods):
    """Use as a context manager: `with tenuto.init() as run:`. A step is one batch, counted by `{batches: N}` in the
    configuration. Steps count from the beginning of the trial, over all its processes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        assignment = session.assignment
        self.hyperparameters: Mapping[str, Any] = copy.deepcopy(assignment.hyperparameters)
        """Values of this trial by name; a group is a dict."""
        self.config: Mapping[str, Any] = assignment.config.model_dump(mode="json")
        """Experiment configuration as plain data, defaults included."""
        self.experiment_id = assignment.experiment_id
        """Experiment of the trial; 0 without a cluster."""
        self.trial_id = assignment.trial_id
        """Id of the trial, such as 3-7: the seventh of experiment 3."""
        self.trial_seed = assignment.trial_seed
        """Seed for the script's own generators: equal in every process of this trial."""
        self.local_directory = session.local_directory
        """Directory of the record without a cluster; None in a cluster."""
        self.metric: str = assignment.config.searcher.metric
        """The validation metric that the search compares."""
        gang = session.gang
        self.rank = 0 if gang is None else gang.rank
        """Rank of this process among those that train this trial, from 0. Only rank 0's reports and checkpoints are used; the
        others may make them, too, without effect."""
        self.slots = 1 if gang is None else gang.world_size
        """Number of processes that train this trial, one on each slot. It may differ when a trial is resumed."""
        self.local_rank = 0 if gang is None else gang.local_rank
        """Rank among those on this node: the index of its GPU."""
        self._lengths = ScriptLengths(assignment.config, session.shorten)
        self._validations, self._validation = Validations(self.metric), dict[str, float]()
        self.validated_at: int | None = None
        """Steps of the latest reported validation; None: none is reported yet."""
        self.steps = 0
        """Furthest position that was reported or saved."""
        self.ended: str | None = None
        """Reason for which the script ended the trial before the length that the search asked for; None: it has not."""
        self._points: list[MetricPoint] = []
        self._points_sent_at = self._progress_sent_at = session.clock.monotonic()
        self._saving_steps = 0
        """Position of the latest checkpoint that was begun."""
        self.is_closed = False
        """True once the run was closed: it takes no more reports."""
        self.checkpoint = Checkpoints(session, self._saving_at, self._validation_at)
        """Checkpoints of this trial: `save`, `restore`, `latest`."""
        self._begun_at = self.checkpoint.latest.steps if self.checkpoint.latest is not None else 0
        """Position at which this process began. It may be beyond the target, if it is that of a trial of an earlier
        experiment."""
        self.steps = self._begun_at
        self._repeat_validation = self.checkpoint.resumed_validation is not None
        if self.checkpoint.resumed_validation is not None:
            self.validated_at, self._validation = self.checkpoint.resumed_validation

    def __getattr__(self, name: str) -> Any:
        raise determined_names.missing(determined_names.RUN, "run", name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self.close()
        else:
            with contextlib.suppress(Exception):  # the error that is under way says more
                self._close()
        return False

    def operations(self) -> Iterator[Operation]:
        """Each training that the search asks for, one after the other: train until `operation.steps`, save, then call
        `report_validation` there. Ends when the trial is over, or has to leave its slots. A body that ends before that, after a
        validation, ends the trial (`end_training`). Raises UserError if a body ends without any validation.

            with tenuto.init() as run:
                steps = 0 if run.checkpoint.latest is None else run.checkpoint.latest.steps
                for operation in run.operations():
                    while steps < operation.steps and not run.should_preempt():
                        steps += 1  # here one batch is trained
                    with run.checkpoint.save(steps) as directory:
                        (directory / "steps").write_text(str(steps))
                    if steps == operation.steps:
                        run.report_validation(steps, {run.metric: 1 / steps})
        """
        self._check_process()
        box = self._session.box
        if self._repeat_validation and self.validated_at is not None:
            # The previous process may have died between the two reports of that position; a repeated report changes nothing.
            self._repeat_validation = False
            self._validated(self.validated_at, self._validation)
        while True:
            if self._session.gang is not None:
                self._session.gang.progress.idle()
            directive = box.current
            if directive.leave:
                return
            target = self._schedule.target_batches(directive.target_length)
            if self.ended is not None or (self.validated_at is not None and self.validated_at >= target):
                self._send_points()
                box.wait_change(directive)  # the search is deciding
                continue
            # A trial of an earlier experiment may be further: a script is not asked for fewer steps than it has done.
            steps = max(target, self._begun_at)
            length = max(directive.target_length, self._schedule.length(steps))
            yield Operation(steps, length, self._lengths.unit)
            if box.current.leave:
                return
            if self.rank > 0:
                self.validated_at = steps  # what rank 0 reports counts
            if self.validated_at is None:
                raise UserError(
                    f"the search asked to train until step {steps}, but the body of `for operation in run.operations()` ended "
                    f"at step {self.steps} without a validation. Train until operation.steps and call "
                    f"run.report_validation({steps}, {{{self.metric!r}: ...}}) there, or before you end the training early."
                )
            if self.validated_at < target:
                self._end(f"the body of `for operation in run.operations()` ended, at step {self.steps} of {steps}")

    def end_training(self, reason: str = "") -> None:
        """Ends the trial here, before the length that the search asked for: with early stopping, for example. Its last reported
        validation counts, it is recorded as completed with `reason` (one line; may be empty), and is not trained further. Leave
        the loop after it: `operations()` ends. With several ranks, call it on each. Raises UserError before the first
        validation."""
        self._check_process()
        if self.validated_at is None and self.rank == 0:
            raise UserError(
                f"run.end_training: nothing was validated yet, and the search compares {self.metric!r}: call "
                "run.report_validation(steps, metrics) before."
            )
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self.ended is not None or self._session.box.current.leave:
            return
        self.ended = early_end.reason_of(reason)
        self._send_points()
        self.checkpoint.wait()
        assignment, length = self._session.assignment, self._schedule.length(self.steps)
        self._session.reports.report("tracker", early_end.ended_report(assignment, self.steps, length, self.ended))
        if self.rank == 0:
            say(early_end.sentence(self.steps, self.ended, self.validated_at))

    def should_preempt(self) -> bool:
        """True: save a checkpoint and leave the loop. Cheap: ask after every step. On several slots every rank must ask
        equally often: then all get the answer in the same step."""
        self.checkpoint.loaded()
        box, waits = self._session.box, self._session.waits
        if waits is not None:
            waits.tick()
            box.differs(box.current)
        return box.current.leave

    def waiting(self) -> AbstractContextManager[None]:
        """Context of a wait for the other ranks that Tenuto does not notice by itself, such as with mpi4py, so that a slow
        rank can be told from those that wait for it. torch.distributed, Horovod and TensorFlow's strategies need none."""
        gang = self._session.gang
        return contextlib.nullcontext() if gang is None else gang.progress.waiting()

    def report_training(self, steps: int, metrics: Mapping[str, Any]) -> None:
        """Reports training metrics at this position. They are sent together, once a second at most.

        `steps`: position in the trial, from 0. `metrics`: by name, numbers or values that `float()` accepts. Raises UserError for
        another position or value, and after the run has ended.

            with tenuto.init() as run:
                for operation in run.operations():
                    for steps in range(1, operation.steps + 1):
                        if run.should_report(steps):
                            run.report_training(steps, {"loss": 1 / steps})
                    run.report_validation(operation.steps, {run.metric: 1 / operation.steps})
        """
        steps, values = self._reported("report_training", steps, metrics)
        session = self._session
        self._points.append(MetricPoint(batches=steps, time_us=session.clock.now_us(), metrics=values))
        now = session.clock.monotonic()
        waited = now - self._points_sent_at >= POINTS_SECONDS_MIN or len(self._points) >= POINTS_MAX
        if waited or steps <= self._saving_steps:
            self._send_points()
        if now - self._progress_sent_at >= PROGRESS_SECONDS_MIN:
            self.report_progress(steps)

    def report_validation(self, steps: int, metrics: Mapping[str, Any]) -> None:
        """Reports validation metrics at this position, which the search compares. One position counts once: give all of its
        metrics together; those of a second call are dropped, with a sentence in the trial's log.

        `steps`: position in the trial, from 0. `metrics`: by name, numbers or values that `float()` accepts, with `run.metric`
        among them. Raises UserError for another position or value, and after the run has ended.

            with tenuto.init() as run:
                for operation in run.operations():
                    run.report_validation(operation.steps, {run.metric: 0.5, "accuracy": 0.9})
        """
        steps, values = self._reported("report_validation", steps, metrics)
        self._leave_out()
        if not self._validations.is_new(steps, values):
            return
        self._send_points()
        self.checkpoint.wait()  # it is reported first: a search that reacts to the validation may count on it
        self._validated(steps, values)

    def report_progress(self, steps: int) -> None:
        """Reports the trial's progress to users. Training metrics do so by themselves. `steps`: position in the trial, from 0.
        Raises UserError for another position, and after the run has ended."""
        steps, _ = self._reported("report_progress", steps, {})
        self._progress_sent_at = self._session.clock.monotonic()
        report = ProgressReport(**self._session.ids, batches=steps, length=self._schedule.length(steps))
        self._session.reports.report("tracker", report)

    def alert(self, title: str, text: str = "", level: Level = "info") -> None:
        """Sends a message to users; it is in the trial's log, in the stream `tenuto`. `title`: what has happened. `text`: more of
        it; may be empty. Both together have 4,000 characters at most; the rest is cut. `level`: info, warning or error. Raises
        UserError after the run has ended."""
        self._check_process()
        line = f"alert ({level}): {title}" + (f": {text}" if text else "")
        assignment, clock = self._session.assignment, self._session.clock
        self._session.reports.report(
            "logs",
            LogsReport(
                trial_id=assignment.trial_id,
                allocation_id=assignment.allocation_id,
                lines=(LogLine(time_us=clock.now_us(), rank=0, stream="tenuto", text=line[:ALERT_CHARACTERS_MAX]),),
            ),
        )

    def notify(self, text: str, level: Level = "info") -> bool:
        """Sends users a notice, through the webhooks with the trigger `notice`. `text`: at most 1,000 characters; the rest is
        cut. `level`: info, warning or error. Returns True if it is sent, and False if there were too many: 20 at once, and then 6
        a minute. Raises UserError for another level and an empty text."""
        return notifier.notify(text, level)

    def close(self) -> None:
        """Sends the remaining reports, and returns when they are safe. Called at the end of the `with` block; a second call is
        harmless. If the search had asked for more than was validated last, the trial ends here (`end_training`)."""
        runs = not self.is_closed and os.getpid() == self._session.process_id and self._session.box.current.action == "run"
        if runs and self.validated_at is not None and self.validated_at < self.target_steps():
            self._end(f"the script ended, at step {self.steps} of {self.target_steps()}")
        self._close()

    def _close(self) -> None:
        """Same as `close`, but does not end the trial: for a process that was told to leave, or that failed."""
        if self.is_closed or os.getpid() != self._session.process_id:
            return
        self.is_closed = True
        box = self._session.box
        try:
            if box.current.action != "kill":
                self.checkpoint.wait()
            saved_at = self.checkpoint.latest.steps if self.checkpoint.latest is not None else 0
            if box.current.action in ("preempt", "pause") and self.steps > saved_at and self.rank == 0:
                say(
                    f"leaves at step {self.steps}, and resumes at step {saved_at}: the steps between are trained again. "
                    "Save a checkpoint when run.should_preempt() is true."
                )
            if box.current.action != "kill":
                self._send_points()
                self._session.reports.flush()
        finally:
            self.checkpoint.close()
            for action in self._session.at_close:
                action()

    def _validated(self, steps: int, metrics: dict[str, float]) -> None:
        report = ValidationReport(**self._session.ids, batches=steps, length=self._schedule.length(steps), metrics=metrics)
        self._validation, self.validated_at = metrics, steps
        self._session.reports.report("tracker", report)

    def _validation_at(self, steps: int) -> dict[str, float] | None:
        return self._validation if self.validated_at == steps else None

    def _leave_out(self) -> None:
        """Excludes this rank's present work from the comparison of steps."""
        if self._session.gang is not None:
            self._session.gang.progress.leave_out()

    def _saving_at(self, steps: int) -> int:
        self._check_process()
        self._leave_out()
        self.steps, self._saving_steps = max(self.steps, steps), steps
        self._send_points()  # a trial that resumes from here does not make them again
        return self._schedule.length(steps)

    def _reported(self, what: str, steps: int, metrics: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
        self._check_process()
        try:
            position = operator.index(steps)
        except TypeError:
            raise UserError(f"run.{what}: steps must be a whole number, not {steps!r}.") from None
        if position < 0:
            raise UserError(f"run.{what}: steps is {position}; steps count from 0.")
        values = numbers_of(what, metrics)
        self.steps = max(self.steps, position)
        self.checkpoint.loaded()
        return position, values

    def _send_points(self) -> None:
        self._points_sent_at = self._session.clock.monotonic()
        if self._points:
            points, self._points = tuple(self._points), []
            self._session.reports.report("metrics", MetricsReport(**self._session.ids, points=points))

    def _check_process(self) -> None:
        if self.is_closed:
            raise UserError("the run has ended: report and save inside the `with tenuto.init() as run:` block.")
        if os.getpid() != self._session.process_id:
            raise UserError("a process that the script has forked cannot report; do it in the script's own process.")
        begin, self._session.at_begin = self._session.at_begin, None
        if begin is not None:
            begin()
