"""Folds events into the state. Never decides: what an event means for the search is in `decide.py` and `methods/`.

Here are the table, and what is about an experiment as a whole; `trials.py` has what is about one trial."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from immutables import Map

from tenuto.kernel.folding import Folds
from tenuto.schemas import ids
from tenuto.schemas.config import PluginSearcher
from tenuto.schemas.events import EventData
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
    PluginMethod,
    TrialExtended,
    TrialPaused,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import CheckpointSaved, TrainingEnded, TrialFailed, TrialFinished, ValidationReported
from tenuto.schemas.operations import Create, Extend, Fail, Stop
from tenuto.services.searcher.evolve import trials
from tenuto.services.searcher.evolve.limits import limits_changed
from tenuto.services.searcher.evolve.places import placed
from tenuto.services.searcher.evolve.trials import IDS_CACHED_MAX, of_trial
from tenuto.services.searcher.methods import Method, method_for
from tenuto.services.searcher.methods.base import Rules
from tenuto.services.searcher.methods.custom import asked_for, changed_creation
from tenuto.services.searcher.state import Experiment, SearcherState, Trial, along
from tenuto.services.searcher.state.ranking import Rung
from tenuto.services.searcher.state.space import Space


def evolve(state: SearcherState, data: EventData) -> SearcherState:
    """The state after an event: an input, or one of the searcher's own."""
    experiment_id = experiment_of(data)
    experiment = None if experiment_id is None else state.experiments.get(experiment_id)
    if experiment_id is None or (experiment is None and type(data) is not ExperimentSubmitted):
        return state  # It is over: nothing that comes late matters to the search.
    changed = fold(experiment, data)
    if changed is experiment:
        return state
    if changed is None:
        return SearcherState(state.experiments.delete(experiment_id))
    return SearcherState(state.experiments.set(experiment_id, changed))


def experiment_of(data: EventData) -> int | None:
    """The experiment that an event is about; None if the search folds no such event."""
    kind = type(data)
    if kind in _BY_TRIAL:
        return _experiment_of_trial(data.trial_id)  # type: ignore[attr-defined]
    return data.experiment_id if kind in _BY_EXPERIMENT else None  # type: ignore[attr-defined]


_experiment_of_trial = lru_cache(maxsize=IDS_CACHED_MAX)(ids.experiment_of)


def _submitted(experiment: Experiment | None, data: ExperimentSubmitted) -> Experiment:
    if experiment is not None:
        return experiment
    settings, space = data.config.searcher, Space(data.config.hyperparameters)
    # The plan of another package's method is recorded when the search starts: no fold needs the package.
    plan = _plan(Rules(settings, space) if isinstance(settings, PluginSearcher) else method_for(settings, space))
    experiment = Experiment(id=data.experiment_id, seed=data.seed, settings=settings, space=space, **plan)
    sources = data.parent.sources if data.parent is not None and data.parent.relation == "continuation" else ()
    earlier = {source.trial_number: source for source in sources if source.validations}
    return experiment.changed(earlier=Map(earlier)) if earlier else experiment


def _plan(method: Method) -> dict[str, Any]:
    """Plan of an experiment by the rules, before its first trial."""
    at_once = method.concurrent_trials_max
    plan = _planned(method, [method.best_max(bracket.trials) for bracket in method.brackets])
    return {**plan, "concurrent_trials_max": at_once, "concurrent_ceiling": at_once}


def _planned(plan: Method | PluginMethod, best_max: Sequence[int]) -> dict[str, Any]:
    """Part of a plan that users cannot change. Their limit of trials at once is none of it: a change of it may stand in the log
    before the start. `best_max`: of each bracket."""
    return {
        "brackets": plan.brackets,
        **along(plan.brackets),
        "trials_max": plan.trials_max,
        "rungs": tuple(Rung(best) for best, bracket in zip(best_max, plan.brackets, strict=True) for _ in bracket.lengths),
        "remembers": plan.remembers,
        "replaces": plan.replaces,
        "keeps_places": plan.keeps_places,
        "trials_ceiling": plan.trials_max,
    }


def _started(experiment: Experiment, data: ExperimentStarted) -> Experiment:
    plan = {} if data.plugin is None else _planned(data.plugin, data.plugin.best_max)
    return experiment.changed(rule_version=data.rule_version, plugin=data.plugin, **plan)


def _cancel_requested(experiment: Experiment, data: ExperimentCancelRequested) -> Experiment:
    return experiment if experiment.canceling else experiment.changed(canceling=True)


def _operations(experiment: Experiment, data: SearchOperationsRequested) -> Experiment:
    """Stores operations that wait for a free place, and the end of the search; all others are decided at once
    (`methods/custom.py`)."""
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


def _requested(experiment: Experiment, data: TrialRequested) -> Experiment:
    custom = experiment.settings.DECIDED_OUTSIDE
    index = 0 if custom else experiment.rung_of(data.bracket, data.target_length)
    memory = experiment.memory
    if experiment.remembers != "nothing":
        memory = memory.set(data.trial_number, json.dumps(data.hyperparameters, separators=(",", ":")))
    place = placed(experiment, data, index)
    source = experiment.earlier.get(data.trial_number)
    if source is not None and not source.is_of(data.trial_number, data.seed, data.hyperparameters):
        experiment = experiment.changed(earlier=experiment.earlier.delete(data.trial_number))
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


def _ended(_: Experiment, __: EventData) -> None:
    """Removes the experiment."""


FOLDS: Folds[Any] = Folds(
    "searcher",
    {
        ExperimentSubmitted: _submitted,
        ExperimentStarted: _started,
        ExperimentCancelRequested: _cancel_requested,
        ExperimentTrialLimitsChanged: limits_changed,
        SearchOperationsRequested: _operations,
        TrialRequested: _requested,
        ValidationReported: of_trial(trials.validated),
        CheckpointSaved: of_trial(trials.saved),
        TrainingEnded: of_trial(trials.training_ended),
        TrialFailed: of_trial(trials.failed),
        TrialFinished: of_trial(trials.finished),
        TrialExtended: of_trial(trials.extended),
        TrialPaused: of_trial(trials.paused),
        TrialStopped: of_trial(trials.stopped),
        ExperimentCompleted: _ended,
        ExperimentFailed: _ended,
        ExperimentCanceled: _ended,
    },
)
"""An experiment after an event about it: the same object if the event changes nothing, None if it is over."""
fold = FOLDS.apply
_BY_EXPERIMENT = frozenset(kind for kind in FOLDS.kinds if "experiment_id" in kind.model_fields)
_BY_TRIAL = FOLDS.kinds - _BY_EXPERIMENT
