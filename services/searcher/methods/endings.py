"""Ends of trials and of whole searches that do not depend on the method."""

from __future__ import annotations

from typing import Literal

from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed, TrialStopped
from tenuto.schemas.events.trial import TrainingEnded, TrialFailed, ValidationReported
from tenuto.schemas.reports import never_reported
from tenuto.schemas.sentences.ends import (
    Canceled,
    EndedByItself,
    FailedTrial,
    HyperparametersRefused,
    NothingReported,
    Outlived,
    RulesLost,
    SearchOver,
)
from tenuto.services.searcher.methods.custom import ended
from tenuto.services.searcher.methods.reasons import at_rung, metric_value, scored
from tenuto.services.searcher.state import Experiment, Trial

ERROR_LINE_CHARACTERS_MAX = 300
"""Most characters of an error, or of what a trial's code says of its end, in a reason."""


def ended_by_itself(experiment: Experiment, trial: Trial, cause: TrainingEnded) -> TrialStopped:
    """Stops a trial whose own code ended its training: it has done all that it can."""
    at = at_rung(experiment, trial.rung)
    compared = trial.own_target is None and len(experiment.lengths) > 1
    why = EndedByItself(
        **scored(experiment, trial.score, whole=not compared or experiment.is_top(trial.rung)),
        trained=cause.length,
        batches=cause.batches,
        length=experiment.target(trial),
        unit=experiment.unit,
        said=cause.said.split("\n", 1)[0][:ERROR_LINE_CHARACTERS_MAX],
        validated=trial.last is not None,
        rung=at["rung"] if compared else None,
        bracket=at["bracket"] if compared else None,
    )
    return TrialStopped(experiment_id=experiment.id, trial_id=cause.trial_id, outcome="completed", reason=why.reason())


def given_up(experiment: Experiment, trial: Trial, cause: TrialFailed) -> TrialStopped:
    """Stops a trial that failed too often."""
    if trial.own_target is not None:
        why = FailedTrial(failures=cause.failures, length=trial.own_target, unit=experiment.unit)
    else:
        came, waited = experiment.rungs[trial.rung].size, trial.key is not None
        why = FailedTrial(failures=cause.failures, **at_rung(experiment, trial.rung), of=came, waited=waited)
    return TrialStopped(experiment_id=experiment.id, trial_id=cause.trial_id, outcome="failed", reason=why.reason())


def invalid(experiment: Experiment, trial: Trial, cause: ValidationReported | TrialFailed) -> TrialStopped:
    """The model's code cannot do with its hyperparameters."""
    said = cause.error.split("\n", 1)[0][:ERROR_LINE_CHARACTERS_MAX] if isinstance(cause, TrialFailed) else ""
    then: Literal["replaced", "counts_not", "point_done"] = "replaced" if trial.own_target is None else "counts_not"
    if not experiment.replaces:
        then = "point_done"
    at = at_rung(experiment, trial.rung)
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="failed",
        reason=HyperparametersRefused(
            error=said, then=then, rung=at["rung"], length=at["length"], invalid=experiment.invalid
        ).reason(),
    )


def canceled(experiment: Experiment, trial: Trial) -> TrialStopped:
    at = at_rung(experiment, trial.rung)
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="canceled",
        reason=Canceled(rung=at["rung"], length=at["length"]).reason(),
    )


def rules_lost(experiment: Experiment, trial: Trial, error: str) -> TrialStopped:
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="canceled",
        reason=RulesLost(error=error).reason(),
    )


def outlived(experiment: Experiment, trial: Trial) -> TrialStopped:
    """Stops a trial that waits although the search is over."""
    if trial.own_target is not None:
        return ended(experiment, trial)
    rung = experiment.rungs[trial.rung]
    assert trial.key is not None, "a trial without a metric never waits"
    why = Outlived(
        **scored(experiment, trial.score),
        **at_rung(experiment, trial.rung),
        rank=rung.best.rank(trial.key) + 1,
        of=rung.size,
    )
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="early_stopped",
        reason=why.reason(),
    )


def ending(experiment: Experiment) -> ExperimentCompleted | ExperimentFailed | ExperimentCanceled:
    """Every trial that was asked for is finished, and no more are wanted."""
    count = experiment.requested
    if experiment.canceling:
        return ExperimentCanceled(experiment_id=experiment.id, trials=count)
    if experiment.ending:
        return ExperimentFailed(experiment_id=experiment.id, error=experiment.ending, trials=count)
    if experiment.ending is not None and not count:
        return ExperimentFailed(experiment_id=experiment.id, error="The search was ended before its first trial.", trials=0)
    if count and experiment.failed == experiment.counted:
        which = "The trial" if count == 1 else f"All {count:,} trials"
        return ExperimentFailed(
            experiment_id=experiment.id,
            error=f"{which} failed. The last error was: {experiment.last_error}",
            trials=count,
        )
    if experiment.settings.POINTS_ARE_GIVEN and not experiment.validated and experiment.last_error:
        # Refused points do not count as failed.
        return ExperimentFailed(
            experiment_id=experiment.id,
            error=f"All {count:,} trials failed or were refused by the model code. The last error was: {experiment.last_error}",
            trials=count,
        )
    if experiment.silent and not experiment.metric_seen:
        return ExperimentCompleted(
            experiment_id=experiment.id, best_trial_id=None, best_metric=None, trials=count, reason=NothingReported().reason()
        )
    if not experiment.metric_seen:
        error = never_reported(experiment.metric, experiment.metric_names)
        return ExperimentFailed(experiment_id=experiment.id, error=error, trials=count)
    best = experiment.best_trial
    return ExperimentCompleted(
        experiment_id=experiment.id,
        best_trial_id=None if best is None else experiment.trial_id(best),
        best_metric=metric_value(experiment, experiment.best_score),
        trials=count,
        reason=SearchOver(**scored(experiment, experiment.best_score), failed=experiment.failed).reason(),
    )
