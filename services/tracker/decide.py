"""Decisions of the tracker: which reports are recorded, which checkpoints are deleted, when a trial has failed or finished."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Command
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
from tenuto.schemas.ids import experiment_of, location_of, trial_of
from tenuto.schemas.replacing import replaced
from tenuto.schemas.reports import (
    CheckpointReport,
    DamageReport,
    DataReport,
    EnvironmentReport,
    LogMatchReport,
    NoticeReport,
    StragglerReport,
    TrackerReport,
    TrainingEndedReport,
    ValidationReport,
)
from tenuto.schemas.sentences.reports import NoSuchTrial, NotCurrent, OtherTrial, Released
from tenuto.schemas.sentences.rules import Numbers
from tenuto.services.tracker.commands import RecordReport
from tenuto.services.tracker.policies import giving_up
from tenuto.services.tracker.policies.retention import Expendable, expendable, expendable_at_end, freed_by
from tenuto.services.tracker.state import Checkpoint, Experiment, State, Trial


def decide(state: State, cause: Event | Command) -> Sequence[EventData]:
    if isinstance(cause, RecordReport):
        return _judge(state, cause.report)
    if not isinstance(cause, Event):
        return ()
    data = cause.data
    if isinstance(data, WorkersExited):
        return _after_exit(state, data)
    if isinstance(data, (TrialStopped, AllocationReleased)):
        return _finish_if_over(state, data.trial_id)
    return ()


def _judge(state: State, report: TrackerReport) -> Sequence[EventData]:
    refusal = _refusal(state, report)
    if refusal:
        return [
            ReportRefused(
                trial_id=report.trial_id, allocation_id=report.allocation_id, report=report.kind, reason=refusal.reason()
            ),
        ]
    experiment = state.experiments[experiment_of(report.trial_id)]
    trial = experiment.trials[report.trial_id]
    if isinstance(report, ValidationReport):
        return _validation(experiment, trial, report)
    if isinstance(report, CheckpointReport):
        return _checkpoint(experiment, trial, report)
    if isinstance(report, DamageReport):
        return [CheckpointDamaged(**report.model_dump(exclude={"kind"}))]
    if isinstance(report, (EnvironmentReport, DataReport)):
        return [_record(experiment, report)]
    if isinstance(report, LogMatchReport):
        return [LogMatched(**report.model_dump(exclude={"kind"}))]
    if isinstance(report, NoticeReport):
        return [NoticeReported(**report.model_dump(exclude={"kind"}))]
    if isinstance(report, StragglerReport):
        return [StragglerNoticed(**report.model_dump(exclude={"kind"}))]
    if isinstance(report, TrainingEndedReport):
        return [] if trial.ended else [TrainingEnded(**report.model_dump(exclude={"kind"}))]
    # Compared within the run: one that went on from a checkpoint begins below what the trial had reached.
    if report.batches <= trial.run_batches:
        return ()
    return [
        TrialProgressed(trial_id=trial.trial_id, allocation_id=report.allocation_id, batches=report.batches, length=report.length)
    ]


def _refusal(state: State, report: TrackerReport) -> Numbers | None:
    """Why the report must not enter the record; None: it may."""
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


def _record(experiment: Experiment, report: EnvironmentReport | DataReport) -> EnvironmentRecorded | DataRecorded:
    """Each start is recorded; an environment is written out once per experiment, as it is the same for most of its runs."""
    trial_id, allocation_id = report.trial_id, report.allocation_id
    if isinstance(report, DataReport):
        return DataRecorded(trial_id=trial_id, allocation_id=allocation_id, data=report.data, changed_from=report.changed_from)
    name = report.environment.digest()
    known = name in experiment.environments
    return EnvironmentRecorded(
        trial_id=trial_id,
        allocation_id=allocation_id,
        environment_hash=name,
        environment=None if known else report.environment,
    )


def _validation(experiment: Experiment, trial: Trial, report: ValidationReport) -> Sequence[EventData]:
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


def _checkpoint(experiment: Experiment, trial: Trial, report: CheckpointReport) -> Sequence[EventData]:
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


def _after_exit(state: State, data: WorkersExited) -> Sequence[EventData]:
    """Called with the exit folded in."""
    experiment = state.experiment(experiment_of(data.trial_id))
    trial = experiment.trials.get(data.trial_id) if experiment else None
    if experiment is None or trial is None or data.allocation_id != trial.allocation_id or trial.over:
        return ()
    given_up = giving_up.verdict(trial.ends, data, experiment.max_restarts)
    if given_up is not None:
        return [_failed(trial, data, given_up, final=True)]
    return [_failed(trial, data, giving_up.error_of(data), final=False)] if data.outcome == "failed" else ()


def _failed(trial: Trial, data: WorkersExited, error: str, *, final: bool) -> TrialFailed:
    return TrialFailed(
        trial_id=trial.trial_id,
        allocation_id=data.allocation_id,
        error=error,
        failures=trial.ends.failures,
        final=final,
        invalid_hyperparameters=data.outcome == "failed" and data.cause == "invalid_hyperparameters",
    )


def _finish_if_over(state: State, trial_id: str) -> Sequence[EventData]:
    experiment = state.experiment(experiment_of(trial_id))
    trial = experiment.trials.get(trial_id) if experiment else None
    if experiment is None or trial is None or not trial.stopped or trial.allocation_id is not None:
        return ()
    gone = expendable_at_end(experiment, trial)
    latest = next((item for item in reversed(trial.checkpoints) if item.checkpoint_id not in trial.damaged), None)
    kept = latest is not None and all(checkpoint_id != latest.checkpoint_id for _, checkpoint_id, _ in gone)
    finished = TrialFinished(
        trial_id=trial_id,
        batches=trial.batches,
        length=trial.length,
        checkpoint_id=latest.checkpoint_id if latest is not None and kept else None,
    )
    # TrialFinished is last: its fold forgets the trial, in which the deletions are folded.
    return [*_deletions(gone), *_deletions(freed_by(experiment, trial)), finished]
