"""Folds events into the tracker's state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tenuto.schemas.envelope import Event
from tenuto.schemas.events.pool import AllocationGranted, AllocationReleased
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.run import EXIT_CODE_FOLLOWED, EXIT_CODE_INFRASTRUCTURE, WorkersExited
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import (
    CheckpointDamaged,
    CheckpointDeleted,
    CheckpointSaved,
    EnvironmentRecorded,
    TrialFailed,
    TrialFinished,
    TrialProgressed,
    ValidationReported,
)
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.replacing import replaced
from tenuto.services.tracker.policies.retention import held_at_end, ranking
from tenuto.services.tracker.state import ENVIRONMENTS_MAX, Checkpoint, Experiment, State, Trial

BLAMELESS_EXITS = (None, EXIT_CODE_FOLLOWED, EXIT_CODE_INFRASTRUCTURE)
"""Codes of losses that no code of the user's can be to blame for: an agent is gone, a link was cut."""


def evolve(state: State, event: Event) -> State:
    """An event about an experiment or a trial that is not live changes nothing."""
    if event.stream.startswith("pool/"):
        folded = state.pool_versions.get(event.stream, 0) + 1
        state = replaced(state, pool_versions=state.pool_versions.set(event.stream, folded))
    data = event.data
    if isinstance(data, ExperimentSubmitted):
        return _submitted(state, data)
    if isinstance(data, (ExperimentCompleted, ExperimentFailed, ExperimentCanceled)):
        return replaced(state, experiments=_without(state.experiments, data.experiment_id))
    if isinstance(data, TrialRequested):
        return _requested(state, data)
    if isinstance(data, TrialFinished):
        return _finished(state, data.trial_id)
    if isinstance(data, EnvironmentRecorded):
        return _environment(state, data)
    step = _STEPS.get(type(data))
    if step is None:
        return state
    experiment_id = experiment_of(data.trial_id)  # type: ignore[attr-defined]
    experiment = state.experiment(experiment_id)
    trial = experiment.trials.get(data.trial_id) if experiment else None  # type: ignore[attr-defined]
    if experiment is None:
        return state
    if isinstance(data, CheckpointDeleted) and (experiment.ranked or data.checkpoint_id in experiment.held):
        experiment = replaced(
            experiment,
            ranked=tuple(item for item in experiment.ranked if item.checkpoint_id != data.checkpoint_id),
            held=_without(experiment.held, data.checkpoint_id),
        )
        state = replaced(state, experiments=state.experiments.set(experiment_id, experiment))
    if trial is None:
        return state
    if isinstance(data, CheckpointSaved) and trial.source is not None:
        experiment = _without_source(experiment, trial)
        state = replaced(state, experiments=state.experiments.set(experiment_id, experiment))
        trial = replaced(trial, source=None)
    return _put(state, experiment_id, step(experiment, trial, data))


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


def _finished(state: State, trial_id: str) -> State:
    experiment = state.experiment(experiment_of(trial_id))
    if experiment is None:
        return state
    trial = experiment.trials.get(trial_id)
    if trial is not None:
        held = experiment.held
        for owner, checkpoint_id in held_at_end(experiment, trial):
            held = held.set(checkpoint_id, owner)
        experiment = replaced(experiment, held=held)
        if experiment.checkpoint_policy == "best" and experiment.save_experiment_best:
            experiment = replaced(experiment, ranked=ranking(experiment, trial, over=True))
        experiment = _without_source(experiment, trial)
    experiment = replaced(experiment, trials=_without(experiment.trials, trial_id))
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


def _stopped(_: Experiment, trial: Trial, __: TrialStopped) -> Trial:
    return replaced(trial, stopped=True)


def _granted(_: Experiment, trial: Trial, data: AllocationGranted) -> Trial:
    return replaced(trial, allocation_id=data.allocation_id, exited=False, advanced=False, run_batches=-1)


def _released(_: Experiment, trial: Trial, data: AllocationReleased) -> Trial:
    if data.allocation_id != trial.allocation_id:
        return trial
    return replaced(trial, allocation_id=None, exited=False, advanced=False, run_batches=-1)


def _exited(_: Experiment, trial: Trial, data: WorkersExited) -> Trial:
    if data.allocation_id != trial.allocation_id or trial.exited:
        return trial
    if data.outcome == "lost":
        losses, deaths = (0, 0) if trial.advanced else (trial.losses, trial.deaths)
        return replaced(trial, exited=True, losses=losses + 1, deaths=deaths + (data.exit_code not in BLAMELESS_EXITS))
    return replaced(trial, exited=True, losses=0, deaths=0, failures=trial.failures + (data.outcome == "failed"))


def _validated(experiment: Experiment, trial: Trial, data: ValidationReported) -> Trial:
    value = data.metrics.get(experiment.metric, math.nan)
    return replaced(
        _reached(trial, data.batches, data.length), validations=trial.validations.set(data.batches, value), advanced=True
    )


def _saved(_: Experiment, trial: Trial, data: CheckpointSaved) -> Trial:
    checkpoint = Checkpoint(data.checkpoint_id, data.batches, data.length)
    return replaced(
        _reached(trial, data.batches, data.length),
        checkpoints=(*trial.checkpoints, checkpoint),
        kept=trial.kept.set(data.checkpoint_id, True),
        advanced=True,
    )


def _deleted(_: Experiment, trial: Trial, data: CheckpointDeleted) -> Trial:
    return replaced(
        trial,
        checkpoints=tuple(item for item in trial.checkpoints if item.checkpoint_id != data.checkpoint_id),
        damaged=tuple(item for item in trial.damaged if item != data.checkpoint_id),
        kept=_without(trial.kept, data.checkpoint_id),
        deleted=trial.deleted.set(data.checkpoint_id, True),
    )


def _damaged(_: Experiment, trial: Trial, data: CheckpointDamaged) -> Trial:
    if data.checkpoint_id not in trial.kept or data.checkpoint_id in trial.damaged:
        return trial
    return replaced(trial, damaged=(*trial.damaged, data.checkpoint_id))


def _progressed(_: Experiment, trial: Trial, data: TrialProgressed) -> Trial:
    return replaced(_reached(trial, data.batches, data.length), run_batches=data.batches)


def _failed(_: Experiment, trial: Trial, data: TrialFailed) -> Trial:
    return replaced(trial, failed=trial.failed or data.final)


def _reached(trial: Trial, batches: int, length: int) -> Trial:
    return replaced(trial, batches=max(trial.batches, batches), length=max(trial.length, length))


_STEPS: dict[type, Callable[[Experiment, Trial, Any], Trial]] = {
    TrialStopped: _stopped,
    AllocationGranted: _granted,
    AllocationReleased: _released,
    WorkersExited: _exited,
    ValidationReported: _validated,
    CheckpointSaved: _saved,
    CheckpointDeleted: _deleted,
    CheckpointDamaged: _damaged,
    TrialProgressed: _progressed,
    TrialFailed: _failed,
}
