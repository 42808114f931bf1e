"""Decisions of the tracker: which reports are recorded, which checkpoints are deleted, when a trial has failed or finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenuto.kernel.core import Command
from tenuto.kernel.decision_tables import decisions, nothing
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationReleased
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.events.search import TrialStopped
from tenuto.schemas.events.trial import (
    CheckpointDamaged,
    CheckpointDeleted,
    CheckpointSaved,
    DataRecorded,
    EnvironmentRecorded,
    LogMatched,
    NoticeReported,
    ReportRefused,
    StragglerNoticed,
    TrainingEnded,
    TrialFailed,
    TrialFinished,
    TrialProgressed,
    ValidationReported,
)
from tenuto.schemas.fast_replace import replaced
from tenuto.schemas.ids import experiment_of, location_of, trial_of
from tenuto.schemas.reports import (
    CheckpointReport,
    DamageReport,
    DataReport,
    EnvironmentReport,
    LogMatchReport,
    NoticeReport,
    ProgressReport,
    StragglerReport,
    TrackerReport,
    TrainingEndedReport,
    ValidationReport,
)
from tenuto.schemas.sentences.reports import NoSuchTrial, NotCurrent, OtherTrial, Released
from tenuto.schemas.sentences.rules import Numbers
from tenuto.services.tracker.commands import RecordTrialReport
from tenuto.services.tracker.policies import restart_limits
from tenuto.services.tracker.policies.retention import Expendable, expendable, expendable_at_end, freed_by
from tenuto.services.tracker.state import Checkpoint, Experiment, State, Trial


def decide(state: State, cause: Event | Command) -> Sequence[EventData]:
    if isinstance(cause, Event):
        return EVENTS.get(type(cause.data), nothing)(state, cause.data)
    return COMMANDS.get(type(cause), nothing)(state, cause)


def record(state: State, command: RecordTrialReport) -> Sequence[EventData]:
    """The report as an event, or why it is none."""
    report = command.report
    refusal = _refusal(state, report)
    if refusal:
        return [
            ReportRefused(
                trial_id=report.trial_id, allocation_id=report.allocation_id, report=report.kind, reason=refusal.reason()
            ),
        ]
    return REPORTS[type(report)](state.experiments[experiment_of(report.trial_id)], report)


def _refusal(state: State, report: TrackerReport) -> Numbers | None:
    """Reason why the report must not enter the record; None: it may."""
    if trial_of(report.allocation_id) != report.trial_id:
        return OtherTrial()
    trial = state.trial(experiment_of(report.trial_id), report.trial_id)
    if trial is None:
        return NoSuchTrial()
    if trial.allocation_id is None:
        return Released()
    if trial.allocation_id != report.allocation_id:
        return NotCurrent(current_allocation=trial.allocation_id)
    return None


def _fields(report: TrackerReport) -> dict[str, Any]:
    """Fields of an event that repeats its report."""
    return report.model_dump(exclude={"kind"})


def _environment(experiment: Experiment, report: EnvironmentReport) -> Sequence[EventData]:
    """Each start is recorded; an environment is written out once per experiment, as it is the same for most of its runs."""
    name = report.environment.digest()
    known = name in experiment.environments
    return [
        EnvironmentRecorded(
            trial_id=report.trial_id,
            allocation_id=report.allocation_id,
            environment_hash=name,
            environment=None if known else report.environment,
        )
    ]


def _ended(experiment: Experiment, report: TrainingEndedReport) -> Sequence[EventData]:
    return [] if experiment.trials[report.trial_id].ended else [TrainingEnded(**_fields(report))]


def _progress(experiment: Experiment, report: ProgressReport) -> Sequence[EventData]:
    # Compared within the run: one that went on from a checkpoint begins below what the trial had reached.
    return [] if report.batches <= experiment.trials[report.trial_id].run_batches else [TrialProgressed(**_fields(report))]


def _validation(experiment: Experiment, report: ValidationReport) -> Sequence[EventData]:
    trial = experiment.trials[report.trial_id]
    # A run that went on from a checkpoint repeats validations; the first result stays.
    if report.batches in trial.validations:
        return ()
    recorded = ValidationReported(
        trial_id=trial.trial_id,
        allocation_id=report.allocation_id,
        batches=report.batches,
        length=report.length,
        metrics=report.metrics,
    )
    value = report.metrics.get(experiment.metric, float("nan"))
    after = replaced(trial, validations=trial.validations.set(report.batches, value))
    return [recorded, *_deletions(expendable(experiment, after))]


def _checkpoint(experiment: Experiment, report: CheckpointReport) -> Sequence[EventData]:
    trial = experiment.trials[report.trial_id]
    if report.checkpoint_id in trial.kept or report.checkpoint_id in trial.deleted:
        return ()
    recorded = CheckpointSaved(
        trial_id=trial.trial_id,
        allocation_id=report.allocation_id,
        checkpoint_id=report.checkpoint_id,
        batches=report.batches,
        length=report.length,
        files=report.files,
        size_bytes=report.size_bytes,
        location=location_of(experiment.store, trial.trial_id, report.checkpoint_id),
        breaks=report.breaks,
    )
    if experiment.checkpoint_policy == "all":  # may be many by now: no copy of them for nothing
        return [recorded, *_deletions(freed_by(experiment, trial))]
    saved = Checkpoint(report.checkpoint_id, report.batches, report.length)
    after = replaced(trial, checkpoints=(*trial.checkpoints, saved))
    return [recorded, *_deletions(freed_by(experiment, trial)), *_deletions(expendable(experiment, after))]


def _deletions(items: Expendable) -> list[EventData]:
    return [
        CheckpointDeleted(trial_id=trial_id, checkpoint_id=checkpoint_id, reason=why.reason())
        for trial_id, checkpoint_id, why in items
    ]


def after_exit(state: State, data: WorkersExited) -> Sequence[EventData]:
    """Called with the exit folded in."""
    experiment = state.experiment(experiment_of(data.trial_id))
    trial = experiment.trials.get(data.trial_id) if experiment else None
    if experiment is None or trial is None or data.allocation_id != trial.allocation_id or trial.over:
        return ()
    given_up = restart_limits.verdict(trial.ends, data, experiment.max_restarts)
    if given_up is not None:
        return [_failed(trial, data, given_up, final=True)]
    return [_failed(trial, data, restart_limits.error_of(data), final=False)] if data.outcome == "failed" else ()


def _failed(trial: Trial, data: WorkersExited, error: str, *, final: bool) -> TrialFailed:
    return TrialFailed(
        trial_id=trial.trial_id,
        allocation_id=data.allocation_id,
        error=error,
        failures=trial.ends.failures,
        final=final,
        invalid_hyperparameters=data.outcome == "failed" and data.cause == "invalid_hyperparameters",
    )


def finish_if_over(state: State, data: TrialStopped | AllocationReleased) -> Sequence[EventData]:
    experiment = state.experiment(experiment_of(data.trial_id))
    trial = experiment.trials.get(data.trial_id) if experiment else None
    if experiment is None or trial is None or not trial.stopped or trial.allocation_id is not None:
        return ()
    gone = expendable_at_end(experiment, trial)
    latest = next((item for item in reversed(trial.checkpoints) if item.checkpoint_id not in trial.damaged), None)
    kept = latest is not None and all(checkpoint_id != latest.checkpoint_id for _, checkpoint_id, _ in gone)
    finished = TrialFinished(
        trial_id=trial.trial_id,
        batches=trial.batches,
        length=trial.length,
        checkpoint_id=latest.checkpoint_id if latest is not None and kept else None,
    )
    # TrialFinished is last: its fold forgets the trial, in which the deletions are folded.
    return [*_deletions(gone), *_deletions(freed_by(experiment, trial)), finished]


COMMANDS = decisions(record)
EVENTS = decisions(after_exit, finish_if_over, parameter="data")
"""Called with the event folded in."""
REPORTS: Mapping[type[TrackerReport], Callable[[Experiment, Any], Sequence[EventData]]] = {
    CheckpointReport: _checkpoint,
    DamageReport: lambda _, report: [CheckpointDamaged(**_fields(report))],
    DataReport: lambda _, report: [DataRecorded(**_fields(report))],
    EnvironmentReport: _environment,
    LogMatchReport: lambda _, report: [LogMatched(**_fields(report))],
    NoticeReport: lambda _, report: [NoticeReported(**_fields(report))],
    ProgressReport: _progress,
    StragglerReport: lambda _, report: [StragglerNoticed(**_fields(report))],
    TrainingEndedReport: _ended,
    ValidationReport: _validation,
}
"""A report of a current allocation -> the events that follow from it, in an experiment that is known."""
