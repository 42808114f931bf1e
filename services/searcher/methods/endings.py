"""How a trial, and the whole search, ends whatever its method is, and what is said about it."""

from __future__ import annotations

from tenuto.schemas.config import GridSearcher
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed, TrialStopped
from tenuto.schemas.events.trial import TrialFailed, ValidationReported
from tenuto.services.searcher.methods.base import place
from tenuto.services.searcher.methods.custom import ended
from tenuto.services.searcher.methods.reasons import metric_value, reason, show
from tenuto.services.searcher.state import Experiment, Trial

ERROR_LINE_CHARACTERS_MAX = 300
"""Of an error, in a reason."""


def given_up(experiment: Experiment, trial: Trial, cause: TrialFailed) -> TrialStopped:
    """It failed too often."""
    rung = experiment.rungs[trial.rung]
    times = f"{cause.failures} failure{'s' * (cause.failures != 1)}"
    if trial.own_target is not None:
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=cause.trial_id,
            outcome="failed",
            reason=reason("failed", f"Given up after {times}.", length=trial.own_target, failures=cause.failures),
        )
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=cause.trial_id,
        outcome="failed",
        reason=reason(
            "failed",
            f"Given up after {times}; at {place(experiment, trial.rung)} it counts as worst of {rung.size}."
            if trial.key is None
            else f"Given up after {times} while it waited at {place(experiment, trial.rung)}.",
            rung=trial.rung,
            length=experiment.lengths[trial.rung],
            of=rung.size,
            failures=cause.failures,
        ),
    )


def invalid(experiment: Experiment, trial: Trial, cause: ValidationReported | TrialFailed) -> TrialStopped:
    """The model's code cannot do with its hyperparameters."""
    said = cause.error.split("\n", 1)[0][:ERROR_LINE_CHARACTERS_MAX] if isinstance(cause, TrialFailed) else ""
    then = "it counts for nothing" + (", and another trial takes its place" if trial.own_target is None else "")
    if not experiment.replaces:
        then = "this point of the grid is done"
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="failed",
        reason=reason(
            "invalid_hyperparameters",
            f"The model code refused its hyperparameters ({said}): {then}.",
            rung=trial.rung,
            length=experiment.lengths[trial.rung],
            invalid=experiment.invalid,
        ),
    )


def canceled(experiment: Experiment, trial: Trial) -> TrialStopped:
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="canceled",
        reason=reason("cancel", "The experiment is canceled.", rung=trial.rung, length=experiment.lengths[trial.rung]),
    )


def outlived(experiment: Experiment, trial: Trial) -> TrialStopped:
    """It waits, and the search is over."""
    if trial.own_target is not None:
        return ended(experiment, trial)
    rung = experiment.rungs[trial.rung]
    assert trial.key is not None, "a trial without a metric never waits"
    rank = rung.best.rank(trial.key) + 1
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="early_stopped",
        reason=reason(
            "search_over",
            f"The search is over: no trial runs and no new one is wanted. Rank {rank} of {rung.size} at"
            f" {place(experiment, trial.rung)}, {show(experiment, trial.score)}, so it was not trained on.",
            rung=trial.rung,
            length=experiment.lengths[trial.rung],
            rank=rank,
            of=rung.size,
            metric=metric_value(experiment, trial.score),
        ),
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
    grid = isinstance(experiment.settings, GridSearcher) and experiment.rule_version >= 3
    if grid and not experiment.validated and experiment.last_error:
        # Refused points do not count as failed.
        return ExperimentFailed(
            experiment_id=experiment.id,
            error=f"All {count:,} trials failed or were refused by the model code. The last error was: {experiment.last_error}",
            trials=count,
        )
    if not experiment.metric_seen:
        names = ", ".join(experiment.metric_names) or "no metric at all"
        return ExperimentFailed(
            experiment_id=experiment.id,
            error=f"No trial reported the metric {experiment.metric!r} that the searcher compares; reported were: {names}."
            " Set searcher.metric to one of these, or return that metric from the evaluation.",
            trials=count,
        )
    best = experiment.best_trial
    found = (
        f"trial {experiment.trial_id(best)} has the best: {show(experiment, experiment.best_score)}"
        if best is not None
        else f"{experiment.metric} was never finite, so none is best"
    )
    return ExperimentCompleted(
        experiment_id=experiment.id,
        best_trial_id=None if best is None else experiment.trial_id(best),
        best_metric=metric_value(experiment, experiment.best_score),
        trials=count,
        reason=reason(
            "search_over",
            f"The search is over: all {count:,} trials are finished ({experiment.failed:,} failed), and {found}.",
            trials=count,
            failed=experiment.failed,
            metric=metric_value(experiment, experiment.best_score),
        ),
    )
