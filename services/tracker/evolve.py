"""Folds events into the tracker's state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tenuto.kernel.folding import Folds, unchanged
from tenuto.schemas.events import EVENT_MODELS, EventData
from tenuto.schemas.events.pool import AllocationGranted, AllocationReleased, PoolEvent
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import (
    CheckpointDamaged,
    CheckpointDeleted,
    CheckpointSaved,
    EnvironmentRecorded,
    LogMatched,
    TrainingEnded,
    TrialFailed,
    TrialFinished,
    TrialProgressed,
    ValidationReported,
)
from tenuto.schemas.fast_replace import replaced
from tenuto.schemas.ids import experiment_of
from tenuto.services.tracker.policies import restart_limits
from tenuto.services.tracker.policies.restart_limits import Ends
from tenuto.services.tracker.policies.retention import held_at_end, ranking
from tenuto.services.tracker.state import ENVIRONMENTS_MAX, Checkpoint, Experiment, State, Trial

EVENTS_OF_POOLS: tuple[type[EventData], ...] = tuple(kind for kind in EVENT_MODELS.values() if issubclass(kind, PoolEvent))


def _submitted(state: State, data: ExperimentSubmitted) -> State:
    config = data.config
    experiment = Experiment(
        experiment_id=data.experiment_id,
        pool=config.resources.pool,
        metric=config.searcher.metric,
        smaller_is_better=config.searcher.smaller_is_better,
        checkpoint_policy=config.checkpoint_policy,
        max_restarts=config.max_restarts,
        store=config.checkpoint_storage.store,
        save_experiment_best=config.checkpoint_storage.save_experiment_best,
        save_trial_best=config.checkpoint_storage.save_trial_best,
        save_trial_latest=config.checkpoint_storage.save_trial_latest,
    )
    return replaced(state, experiments=state.experiments.set(data.experiment_id, experiment))


def _ended(state: State, data: ExperimentCompleted | ExperimentFailed | ExperimentCanceled) -> State:
    return replaced(state, experiments=_without(state.experiments, data.experiment_id))


def _finished(state: State, data: TrialFinished) -> State:
    experiment = state.experiment(experiment_of(data.trial_id))
    if experiment is None:
        return state
    trial = experiment.trials.get(data.trial_id)
    if trial is not None:
        held = experiment.held
        for owner, checkpoint_id in held_at_end(experiment, trial):
            held = held.set(checkpoint_id, owner)
        experiment = replaced(experiment, held=held)
        if experiment.checkpoint_policy == "best" and experiment.save_experiment_best:
            experiment = replaced(experiment, ranked=ranking(experiment, trial, over=True))
        experiment = _without_source(experiment, trial)
    experiment = replaced(experiment, trials=_without(experiment.trials, data.trial_id))
    return replaced(state, experiments=state.experiments.set(experiment.experiment_id, experiment))


def _environment(state: State, data: EnvironmentRecorded) -> State:
    experiment = state.experiment(experiment_of(data.trial_id))
    if experiment is None or data.environment is None or data.environment_hash in experiment.environments:
        return state
    if len(experiment.environments) >= ENVIRONMENTS_MAX:
        return state
    known = tuple(sorted((*experiment.environments, data.environment_hash)))
    return replaced(state, experiments=state.experiments.set(experiment.experiment_id, replaced(experiment, environments=known)))


def _requested(state: State, data: TrialRequested) -> State:
    experiment = state.experiment(data.experiment_id)
    if experiment is None:
        return state
    source = data.source_checkpoint_id
    if source is not None:
        sources = experiment.sources.set(source, experiment.sources.get(source, 0) + 1)
        state = replaced(state, experiments=state.experiments.set(data.experiment_id, replaced(experiment, sources=sources)))
    return _put(state, data.experiment_id, Trial(data.trial_id, source=source))


def _without_source(experiment: Experiment, trial: Trial) -> Experiment:
    """The trial needs the checkpoint that it started from no more."""
    if trial.source is None:
        return experiment
    left = experiment.sources.get(trial.source, 0) - 1
    if left > 0:
        return replaced(experiment, sources=experiment.sources.set(trial.source, left))
    return replaced(experiment, sources=_without(experiment.sources, trial.source), held=_without(experiment.held, trial.source))


def _put(state: State, experiment_id: int, trial: Trial) -> State:
    experiment = state.experiment(experiment_id)
    if experiment is None:
        return state
    experiment = replaced(experiment, trials=experiment.trials.set(trial.trial_id, trial))
    return replaced(state, experiments=state.experiments.set(experiment_id, experiment))


def _without(items: Any, key: Any) -> Any:
    return items.delete(key) if key in items else items


TrialFold = Callable[[Experiment, Trial, Any], Trial]


def of_trial(fold: TrialFold) -> Callable[[State, Any], State]:
    """Fold of the state, from one of the event's trial, for an event that changes its trial alone."""

    def folded(state: State, data: Any) -> State:
        experiment_id = experiment_of(data.trial_id)
        experiment = state.experiment(experiment_id)
        trial = experiment.trials.get(data.trial_id) if experiment else None
        if experiment is None or trial is None:
            return state
        return _put(state, experiment_id, fold(experiment, trial, data))

    return folded


def of_pool(fold: Callable[[State, Any], State]) -> Callable[[State, Any], State]:
    """Fold of an event of a pool's stream: the number of those folded is the version that guards reports."""

    def folded(state: State, data: Any) -> State:
        stream = data.stream()
        count = state.pool_versions.get(stream, 0) + 1
        return fold(replaced(state, pool_versions=state.pool_versions.set(stream, count)), data)

    return folded


def _stopped(_: Experiment, trial: Trial, __: TrialStopped) -> Trial:
    return replaced(trial, stopped=True)


def _granted(_: Experiment, trial: Trial, data: AllocationGranted) -> Trial:
    agents = tuple(part.agent_id for part in data.slots)
    return replaced(
        trial, allocation_id=data.allocation_id, exited=False, advanced=False, run_batches=-1, agents=agents, blamed=False
    )


def _released(_: Experiment, trial: Trial, data: AllocationReleased) -> Trial:
    if data.allocation_id != trial.allocation_id:
        return trial
    return replaced(trial, allocation_id=None, exited=False, advanced=False, run_batches=-1)


def _exited(_: Experiment, trial: Trial, data: WorkersExited) -> Trial:
    if data.allocation_id != trial.allocation_id or trial.exited:
        return trial
    return replaced(trial, exited=True, ends=_ends(trial, data))


def _ends(trial: Trial, data: WorkersExited) -> Ends:
    return restart_limits.after(trial.ends, data, advanced=trial.advanced, agents=trial.agents, blamed=trial.blamed)


def _log_matched(_: Experiment, trial: Trial, data: LogMatched) -> Trial:
    current = data.allocation_id == trial.allocation_id
    return replaced(trial, blamed=True) if current and data.action == "exclude_agent" else trial


def _validated(experiment: Experiment, trial: Trial, data: ValidationReported) -> Trial:
    value = data.metrics.get(experiment.metric, math.nan)
    return replaced(
        _reached(trial, data.batches, data.length), validations=trial.validations.set(data.batches, value), advanced=True
    )


def _saved(state: State, data: CheckpointSaved) -> State:
    experiment = state.experiment(experiment_of(data.trial_id))
    trial = experiment.trials.get(data.trial_id) if experiment else None
    if experiment is None or trial is None:
        return state
    saved = replaced(
        _reached(trial, data.batches, data.length),
        checkpoints=(*trial.checkpoints, Checkpoint(data.checkpoint_id, data.batches, data.length)),
        kept=trial.kept.set(data.checkpoint_id, True),
        advanced=trial.advanced or not trial.checkpoints or data.batches > trial.checkpoints[-1].batches,
        source=None,
    )
    # With the trial as it was: `saved` has lost the source that is given back here.
    experiment = replaced(_without_source(experiment, trial), trials=experiment.trials.set(trial.trial_id, saved))
    return replaced(state, experiments=state.experiments.set(experiment.experiment_id, experiment))


def _deleted(state: State, data: CheckpointDeleted) -> State:
    """Also of a trial that is over: its checkpoint was among the experiment's best, or others started from it."""
    experiment = state.experiment(experiment_of(data.trial_id))
    if experiment is not None and (experiment.ranked or data.checkpoint_id in experiment.held):
        experiment = replaced(
            experiment,
            ranked=tuple(item for item in experiment.ranked if item.checkpoint_id != data.checkpoint_id),
            held=_without(experiment.held, data.checkpoint_id),
        )
        state = replaced(state, experiments=state.experiments.set(experiment.experiment_id, experiment))
    return _deleted_of_trial(state, data)


def _deleted_of(_: Experiment, trial: Trial, data: CheckpointDeleted) -> Trial:
    return replaced(
        trial,
        checkpoints=tuple(item for item in trial.checkpoints if item.checkpoint_id != data.checkpoint_id),
        damaged=tuple(item for item in trial.damaged if item != data.checkpoint_id),
        kept=_without(trial.kept, data.checkpoint_id),
        deleted=trial.deleted.set(data.checkpoint_id, True),
    )


_deleted_of_trial = of_trial(_deleted_of)


def _damaged(_: Experiment, trial: Trial, data: CheckpointDamaged) -> Trial:
    if data.checkpoint_id not in trial.kept or data.checkpoint_id in trial.damaged:
        return trial
    return replaced(trial, damaged=(*trial.damaged, data.checkpoint_id))


def _progressed(_: Experiment, trial: Trial, data: TrialProgressed) -> Trial:
    return replaced(_reached(trial, data.batches, data.length), run_batches=data.batches)


def _training_ended(_: Experiment, trial: Trial, data: TrainingEnded) -> Trial:
    return replaced(_reached(trial, data.batches, data.length), ended=True)


def _failed(_: Experiment, trial: Trial, data: TrialFailed) -> Trial:
    return replaced(trial, failed=trial.failed or data.final)


def _reached(trial: Trial, batches: int, length: int) -> Trial:
    return replaced(trial, batches=max(trial.batches, batches), length=max(trial.length, length))


FOLDS: Folds[State] = Folds(
    "tracker",
    {
        ExperimentSubmitted: _submitted,
        ExperimentCompleted: _ended,
        ExperimentFailed: _ended,
        ExperimentCanceled: _ended,
        TrialRequested: _requested,
        TrialStopped: of_trial(_stopped),
        WorkersExited: of_trial(_exited),
        # Every type of the pool streams, also one that is new.
        **dict.fromkeys(EVENTS_OF_POOLS, of_pool(unchanged)),
        AllocationGranted: of_pool(of_trial(_granted)),
        AllocationReleased: of_pool(of_trial(_released)),
        ValidationReported: of_trial(_validated),
        CheckpointSaved: _saved,
        CheckpointDeleted: _deleted,
        CheckpointDamaged: of_trial(_damaged),
        EnvironmentRecorded: _environment,
        TrialProgressed: of_trial(_progressed),
        TrainingEnded: of_trial(_training_ended),
        LogMatched: of_trial(_log_matched),
        TrialFailed: of_trial(_failed),
        TrialFinished: _finished,
    },
)
"""An event about an experiment or a trial that is not live changes nothing."""
