"""Folds events into the state. Never decides: what an event means for the search is in `decide.py` and `methods/`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tenuto.schemas import ids
from tenuto.schemas.config.searchers import GridSearcher
from tenuto.schemas.events import EVENT_MODELS, EventData
from tenuto.schemas.events.request import (
    ExperimentCancelRequested,
    ExperimentSubmitted,
    ExperimentTrialLimitsChanged,
    SearchOperationsRequested,
)
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
from tenuto.schemas.events.trial import CheckpointSaved, TrialFailed, TrialFinished, ValidationReported
from tenuto.schemas.operations import Create, Extend, Fail, Stop
from tenuto.services.searcher.evolve.limits import limits_changed
from tenuto.services.searcher.evolve.places import placed, vacated
from tenuto.services.searcher.methods import RULE_VERSION, RULE_VERSIONS_KNOWN, Method, method_for
from tenuto.services.searcher.methods.custom import asked_for, changed_creation
from tenuto.services.searcher.methods.sampling import Space
from tenuto.services.searcher.state import (
    ERROR_CHARACTERS_MAX,
    INVALID_MAX,
    METRIC_NAMES_MAX,
    Asked,
    Experiment,
    SearcherState,
    Trial,
)
from tenuto.services.searcher.state.ladder import flat_lengths, last_rungs, promotion_order
from tenuto.services.searcher.state.ranking import Rung

IDS_CACHED_MAX = 4_096
"""Ids taken apart that are kept: each event about a trial asks for its parts several times."""
ENDINGS = frozenset({ExperimentCompleted, ExperimentFailed, ExperimentCanceled})
_BY_TRIAL = frozenset({ValidationReported, CheckpointSaved, TrialFailed, TrialFinished})
_BY_EXPERIMENT = frozenset(
    {
        ExperimentSubmitted,
        ExperimentCancelRequested,
        ExperimentTrialLimitsChanged,
        SearchOperationsRequested,
        *(kind for kind in EVENT_MODELS.values() if issubclass(kind, Search)),
    }
)


def experiment_of(data: EventData) -> int | None:
    """The experiment that an event is about; None if it is about none."""
    kind = type(data)
    if kind in _BY_TRIAL:
        return _experiment_of_trial(data.trial_id)  # type: ignore[attr-defined]
    return data.experiment_id if kind in _BY_EXPERIMENT else None  # type: ignore[attr-defined]


@lru_cache(maxsize=IDS_CACHED_MAX)
def number_of(trial_id: str) -> int:
    return int(trial_id.rsplit("-", 1)[1])


_experiment_of_trial = lru_cache(maxsize=IDS_CACHED_MAX)(ids.experiment_of)


def evolve(state: SearcherState, data: EventData) -> SearcherState:
    """The state after an event: an input, or one of the searcher's own."""
    experiment_id = experiment_of(data)
    if experiment_id is None:
        return state
    experiment = state.experiments.get(experiment_id)
    kind = type(data)
    if kind is ExperimentSubmitted:
        if experiment is not None:
            return state
        return SearcherState(state.experiments.set(experiment_id, begin(data)))  # type: ignore[arg-type]
    if experiment is None:
        return state  # It is over: nothing that comes late matters to the search.
    if kind in ENDINGS:
        return SearcherState(state.experiments.delete(experiment_id))
    changed = fold(experiment, data)
    return state if changed is experiment else SearcherState(state.experiments.set(experiment_id, changed))


def begin(data: ExperimentSubmitted) -> Experiment:
    settings, space = data.config.searcher, Space(data.config.hyperparameters)
    plan = _plan(method_for(settings, space))
    return Experiment(id=data.experiment_id, seed=data.seed, settings=settings, space=space, **plan)


def _plan(method: Method) -> dict[str, Any]:
    """What the rules say about an experiment before its first trial."""
    brackets = method.brackets
    return {
        "brackets": brackets,
        "lengths": flat_lengths(brackets),
        "lasts": last_rungs(brackets),
        "order": promotion_order(brackets),
        "trials_max": method.trials_max,
        "concurrent_trials_max": method.concurrent_trials_max,
        "rungs": tuple(Rung(method.best_max(bracket.trials)) for bracket in brackets for _ in bracket.lengths),
        "remembers": method.remembers,
        "replaces": method.replaces,
        "keeps_places": method.keeps_places,
        "trials_ceiling": method.trials_max,
        "concurrent_ceiling": method.concurrent_trials_max,
    }


def fold(experiment: Experiment, data: EventData) -> Experiment:
    """One experiment after an event about it; the same object if the event changes nothing."""
    kind = type(data)
    if (about_trial := _TRIAL_FOLDS.get(kind)) is not None:
        known = experiment.trials.get(number_of(data.trial_id))  # type: ignore[attr-defined]
        return experiment if known is None else about_trial(experiment, known, data)
    if (about_all := _FOLDS.get(kind)) is not None:
        return about_all(experiment, data)
    return experiment


def _started(experiment: Experiment, data: ExperimentStarted) -> Experiment:
    version = data.rule_version
    if version == RULE_VERSION or version not in RULE_VERSIONS_KNOWN:
        return experiment.changed(rule_version=version)
    # It was begun by the newest rules, as nothing had said yet by which it would be searched.
    return experiment.changed(rule_version=version, **_plan(method_for(experiment.settings, experiment.space, version)))


def _cancel_requested(experiment: Experiment, data: ExperimentCancelRequested) -> Experiment:
    return experiment if experiment.canceling else experiment.changed(canceling=True)


def _operations(experiment: Experiment, data: SearchOperationsRequested) -> Experiment:
    """What waits for a free place, and whether the search is over; what follows at once is decided (`methods/custom.py`)."""
    creations, extensions = list(experiment.creations), list(experiment.extensions)
    ending = experiment.ending
    for index, operation in enumerate(data.operations):
        if isinstance(operation, Create):
            creations.append(asked_for(data, index, operation))
        elif isinstance(operation, (Extend, Stop)):
            waiting = operation.trial - experiment.requested - 1
            if 0 <= waiting < len(creations):
                creations[waiting] = changed_creation(creations[waiting], operation)
            trial = experiment.trials.get(operation.trial)
            if trial is None or trial.status != "paused":
                continue
            extensions = [item for item in extensions if item[0] != trial.number]
            if isinstance(operation, Extend) and operation.length > experiment.target(trial):
                extensions.append((trial.number, asked_for(data, index, operation)))
        elif ending is None:
            ending = operation.error if isinstance(operation, Fail) else ""
    return experiment.changed(creations=tuple(creations), extensions=tuple(extensions), ending=ending)


def _without(extensions: tuple[tuple[int, Asked], ...], number: int) -> tuple[tuple[int, Asked], ...]:
    return tuple(item for item in extensions if item[0] != number) if extensions else extensions


def _requested(experiment: Experiment, data: TrialRequested) -> Experiment:
    custom = experiment.settings.name == "custom"
    index = 0 if custom else experiment.rung_of(data.bracket, data.target_length)
    memory = experiment.memory
    if experiment.remembers != "nothing":
        memory = memory.set(data.trial_number, json.dumps(data.hyperparameters, separators=(",", ":")))
    place = placed(experiment, data, index)
    return experiment.with_trial(
        None,
        Trial(data.trial_number, index, "running", own_target=data.target_length if custom else None, place=place),
        vacant=experiment.vacant[1:],
        replacements=experiment.replacements + bool(experiment.vacant),
        requested=max(experiment.requested, data.trial_number),
        rungs=experiment.with_rung(index, experiment.rungs[index].start()),
        memory=memory,
        creations=experiment.creations[1:],
    )


def _saved(experiment: Experiment, trial: Trial, data: CheckpointSaved) -> Experiment:
    if experiment.remembers != "living":
        return experiment  # only who copies trials needs to know
    return experiment.with_trial(trial, trial.changed(checkpoint_id=data.checkpoint_id))


def _finished(experiment: Experiment, trial: Trial, data: TrialFinished) -> Experiment:
    if trial.status != "stopped":
        return experiment
    memory = experiment.memory
    if experiment.remembers == "living" and trial.number in memory:
        memory = memory.delete(trial.number)
    return experiment.changed(trials=experiment.trials.delete(trial.number), memory=memory)


def _paused(experiment: Experiment, trial: Trial, data: TrialPaused) -> Experiment:
    return paused(experiment, trial)


def paused(experiment: Experiment, trial: Trial) -> Experiment:
    """With the trial waiting where it is."""
    rungs = experiment.rungs
    if trial.key is not None and trial.own_target is None:
        rungs = experiment.with_rung(trial.rung, rungs[trial.rung].wait(trial.key))
    return experiment.with_trial(trial, trial.changed(status="paused"), rungs=rungs)


def _stopped(experiment: Experiment, trial: Trial, data: TrialStopped) -> Experiment:
    return experiment.with_trial(
        trial,
        trial.changed(status="stopped"),
        rungs=_left(experiment, trial),
        extensions=_without(experiment.extensions, trial.number),
        failed=experiment.failed + (data.outcome == "failed" and trial.status != "invalid"),
    )


def _extended(experiment: Experiment, trial: Trial, data: TrialExtended) -> Experiment:
    if trial.own_target is not None:
        extended = trial.changed(own_target=data.target_length, status="running", score=None)
        return experiment.with_trial(trial, extended, extensions=_without(experiment.extensions, trial.number))
    rungs = list(experiment.rungs)
    if trial.status == "paused" and trial.key is not None:
        rungs[trial.rung] = rungs[trial.rung].leave(trial.key)
    rung = trial.rung + 1
    rungs[rung] = rungs[rung].enter()
    return experiment.with_trial(trial, trial.changed(rung=rung, status="running", score=None, place=None), rungs=tuple(rungs))


def _left(experiment: Experiment, trial: Trial) -> tuple[Rung, ...]:
    """The rungs when the trial waits no longer."""
    if trial.status != "paused" or trial.key is None:
        return experiment.rungs
    return experiment.with_rung(trial.rung, experiment.rungs[trial.rung].leave(trial.key))


def _validated(experiment: Experiment, trial: Trial, data: ValidationReported) -> Experiment:
    score = experiment.score_of(data.metrics)
    experiment = _noted(experiment, trial, score, data)
    if trial.status != "running":
        return experiment
    recent = _recent(trial, data.batches, score, experiment.averaged) if experiment.averaged > 1 else ()
    if data.length < experiment.target(trial):
        return experiment if recent == trial.recent else experiment.with_trial(trial, trial.changed(recent=recent))
    if score is not None and recent and not experiment.is_top(trial.rung):
        score = sum([one for _, one in recent]) / len(recent) + 0.0
    reported = trial.changed(status="reported", score=score, recent=())
    if trial.own_target is not None:
        return experiment.with_trial(trial, reported)
    rungs = experiment.with_rung(trial.rung, _arrived(experiment, reported))
    scores = experiment.scores_of(data.metrics)
    if scores is None:
        return experiment.with_trial(trial, reported, rungs=rungs)
    objectives = experiment.objectives.set(trial.number, scores)
    return experiment.with_trial(trial, reported, rungs=rungs, objectives=objectives)


def _recent(trial: Trial, batches: int, score: float | None, most: int) -> tuple[tuple[int, float], ...]:
    """Its last validations with this one. What a restart repeats replaces what was said before; what is no number is left out."""
    before = tuple(item for item in trial.recent if item[0] < batches)
    return (before if score is None else (*before, (batches, score)))[-most:]


def _arrived(experiment: Experiment, trial: Trial) -> Rung:
    """Its rung, where it is compared now."""
    rung = experiment.rungs[trial.rung].arrive(trial.key)
    return rung if trial.key is not None else _told(experiment, trial, rung)


def _told(experiment: Experiment, trial: Trial, rung: Rung) -> Rung:
    """The rung of a trial without a score, which a model learns from nevertheless."""
    return rung.lose(trial.number) if experiment.remembers == "all" else rung


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
    if not data.final or trial.status not in ("running", "paused"):
        return experiment
    index = trial.rung
    if data.invalid_hyperparameters and experiment.replaces and _may_be_replaced(experiment, trial):
        # It never counted: neither for a rung nor for the number of trials.
        rungs = experiment.with_rung(index, _told(experiment, trial, experiment.rungs[index].withdraw()))
        vacant = (*experiment.vacant, vacated(trial)) if experiment.keeps_places else ()
        return experiment.with_trial(
            trial, trial.changed(status="invalid"), rungs=rungs, invalid=experiment.invalid + 1, vacant=vacant
        )
    rungs = _left(experiment, trial)
    if trial.status == "running" and trial.own_target is None:
        # It counts as worst of the rung that it did not reach. One that waited is compared there already.
        rungs = experiment.with_rung(index, _told(experiment, trial, rungs[index].arrive(None)))
    # A point of a grid that the code refuses is done: nothing takes its place, and it tells nothing about the code.
    refused = data.invalid_hyperparameters and experiment.rule_version >= 3 and isinstance(experiment.settings, GridSearcher)
    return experiment.with_trial(
        trial,
        trial.changed(status="invalid" if refused else "failing"),
        rungs=rungs,
        last_error=data.error[:ERROR_CHARACTERS_MAX],
        extensions=_without(experiment.extensions, trial.number),
    )


def _may_be_replaced(experiment: Experiment, trial: Trial) -> bool:
    """Only one that has not been compared yet, or the comparison would have counted somebody who never was."""
    copy = trial.place is not None and trial.place.parent is not None
    # What a copy begins from is kept for it only until it has saved a checkpoint of its own.
    started_here = trial.checkpoint_id is None if copy else trial.rung in _firsts(experiment)
    return trial.status == "running" and started_here and experiment.invalid < max(INVALID_MAX, experiment.trials_max)


def _firsts(experiment: Experiment) -> list[int]:
    return [experiment.first(bracket) for bracket in range(len(experiment.brackets))]


_FOLDS: dict[type[EventData], Callable[[Experiment, Any], Experiment]] = {
    ExperimentStarted: _started,
    ExperimentCancelRequested: _cancel_requested,
    ExperimentTrialLimitsChanged: limits_changed,
    SearchOperationsRequested: _operations,
    TrialRequested: _requested,
}
_TRIAL_FOLDS: dict[type[EventData], Callable[[Experiment, Trial, Any], Experiment]] = {
    ValidationReported: _validated,
    CheckpointSaved: _saved,
    TrialFailed: _failed,
    TrialFinished: _finished,
    TrialExtended: _extended,
    TrialPaused: _paused,
    TrialStopped: _stopped,
}
