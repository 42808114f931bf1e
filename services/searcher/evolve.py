"""Folds events into the state. Never decides: what an event means for the search is in `decide.py` and `methods/`."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from tenuto.schemas import ids
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentCancelRequested, ExperimentSubmitted
from tenuto.schemas.events.search import (
    ExperimentCanceled,
    ExperimentCompleted,
    ExperimentFailed,
    ExperimentStarted,
    Search,
    TrialExtended,
    TrialPaused,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import TrialFailed, TrialFinished, ValidationReported
from tenuto.services.searcher.methods import method_for
from tenuto.services.searcher.ranking import Rung
from tenuto.services.searcher.state import ERROR_CHARACTERS_MAX, METRIC_NAMES_MAX, Experiment, SearcherState, Trial

Concerns = ExperimentSubmitted | ExperimentCancelRequested | ValidationReported | TrialFailed | TrialFinished


def experiment_of(data: EventData) -> int | None:
    """The experiment that an event is about; None if it is about none."""
    if isinstance(data, (ValidationReported, TrialFailed, TrialFinished)):
        return ids.experiment_of(data.trial_id)
    if isinstance(data, (Search, ExperimentSubmitted, ExperimentCancelRequested)):
        return data.experiment_id
    return None


def number_of(trial_id: str) -> int:
    return int(trial_id.rsplit("-", 1)[1])


def evolve(state: SearcherState, data: EventData) -> SearcherState:
    """The state after an event: an input, or one of the searcher's own."""
    experiment_id = experiment_of(data)
    if experiment_id is None:
        return state
    experiment = state.experiments.get(experiment_id)
    if isinstance(data, ExperimentSubmitted):
        if experiment is not None:
            return state
        return SearcherState(state.experiments.set(experiment_id, begin(data)))
    if experiment is None:
        return state  # It is over: nothing that comes late matters to the search.
    if isinstance(data, (ExperimentCompleted, ExperimentFailed, ExperimentCanceled)):
        return SearcherState(state.experiments.delete(experiment_id))
    changed = fold(experiment, data)
    return state if changed is experiment else SearcherState(state.experiments.set(experiment_id, changed))


def begin(data: ExperimentSubmitted) -> Experiment:
    config = data.config
    method = method_for(config.searcher, config.hyperparameters)
    lengths = method.lengths
    return Experiment(
        id=data.experiment_id,
        seed=data.seed,
        settings=config.searcher,
        space=config.hyperparameters,
        lengths=lengths,
        trials_max=method.trials_max,
        concurrent_trials_max=method.concurrent_trials_max,
        rungs=(Rung(method.rung_best_max),) * len(lengths),
        trials=Map(),
    )


def fold(experiment: Experiment, data: EventData) -> Experiment:
    """One experiment after an event about it; the same object if the event changes nothing."""
    match data:
        case ExperimentStarted():
            return experiment.changed(rule_version=data.rule_version)
        case ExperimentCancelRequested():
            return experiment if experiment.canceling else experiment.changed(canceling=True)
        case TrialRequested():
            trial = Trial(data.trial_number, experiment.lengths.index(data.target_length), "running")
            return experiment.with_trial(trial, requested=max(experiment.requested, data.trial_number))
        case ValidationReported() | TrialFailed() | TrialFinished() | TrialExtended() | TrialPaused() | TrialStopped():
            known = experiment.trials.get(number_of(data.trial_id))
            return experiment if known is None else _fold_trial(experiment, known, data)
        case _:
            return experiment


def _fold_trial(experiment: Experiment, trial: Trial, data: EventData) -> Experiment:
    match data:
        case ValidationReported():
            return _validated(experiment, trial, data)
        case TrialFailed():
            return _failed(experiment, trial, data) if data.final else experiment
        case TrialFinished():
            if trial.status != "stopped":
                return experiment
            return experiment.changed(trials=experiment.trials.delete(trial.number))
        case TrialExtended():
            rung = experiment.lengths.index(data.target_length)
            return experiment.with_trial(Trial(trial.number, rung, "running"), rungs=_left(experiment, trial))
        case TrialPaused():
            rungs = experiment.rungs
            if trial.key is not None:
                rungs = experiment.with_rung(trial.rung, rungs[trial.rung].wait(trial.key))
            return experiment.with_trial(replace(trial, status="paused"), rungs=rungs)
        case TrialStopped():
            return experiment.with_trial(
                replace(trial, status="stopped"),
                rungs=_left(experiment, trial),
                failed=experiment.failed + (data.outcome == "failed"),
            )
        case _:
            return experiment


def _left(experiment: Experiment, trial: Trial) -> tuple[Rung, ...]:
    """The rungs when the trial waits no longer."""
    if trial.status != "paused" or trial.key is None:
        return experiment.rungs
    return experiment.with_rung(trial.rung, experiment.rungs[trial.rung].leave(trial.key))


def _validated(experiment: Experiment, trial: Trial, data: ValidationReported) -> Experiment:
    score = experiment.score_of(data.metrics)
    experiment = _noted(experiment, trial, score, data)
    if trial.status != "running" or data.length < experiment.lengths[trial.rung]:
        return experiment
    trial = replace(trial, status="reported", score=score)
    rungs = experiment.with_rung(trial.rung, experiment.rungs[trial.rung].arrive(trial.key))
    return experiment.with_trial(trial, rungs=rungs)


def _noted(experiment: Experiment, trial: Trial, score: float | None, data: ValidationReported) -> Experiment:
    """What any validation tells: the best metric so far, and which metrics there are."""
    seen = experiment.metric in data.metrics
    names = experiment.metric_names
    if not experiment.metric_seen and not seen:
        names = tuple(sorted({*names, *data.metrics})[:METRIC_NAMES_MAX])
    best = (experiment.best_trial, experiment.best_score)
    if score is not None and (experiment.best_score is None or score < experiment.best_score):
        best = (trial.number, score)
    now = (True, experiment.metric_seen or seen, () if seen else names, *best)
    before = (
        experiment.validated,
        experiment.metric_seen,
        experiment.metric_names,
        experiment.best_trial,
        experiment.best_score,
    )
    if now == before:
        return experiment
    return experiment.changed(validated=True, metric_seen=now[1], metric_names=now[2], best_trial=best[0], best_score=best[1])


def _failed(experiment: Experiment, trial: Trial, data: TrialFailed) -> Experiment:
    if trial.status not in ("running", "paused"):
        return experiment
    rungs = _left(experiment, trial)
    if trial.status == "running":
        # It counts as worst of the rung that it did not reach. One that waited is compared there already.
        rungs = experiment.with_rung(trial.rung, rungs[trial.rung].arrive(None))
    failing = replace(trial, status="failing")
    return experiment.with_trial(failing, rungs=rungs, last_error=data.error[:ERROR_CHARACTERS_MAX])
