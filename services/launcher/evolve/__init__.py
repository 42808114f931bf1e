"""Folds events into the launcher's state: experiments and their trials here, allocations and agents in `allocations.py`, nodes
that a provisioner starts in `nodes.py`."""

from __future__ import annotations

from dataclasses import replace

from tenuto.kernel.folding import Folds, WithEnvelope, unchanged
from tenuto.schemas.assignments import EARLIER_CHECKPOINTS_MAX, SourceCheckpoint
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.joining import AgentEnrolled, AgentRevoked
from tenuto.schemas.events.node import NodeEnded, NodeFailed, NodeReleased, NodeRequested, NodeStarted
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationResized, CapacityWanted
from tenuto.schemas.events.provisioning import NodeReleaseRequested, PoolMountsChanged, PoolProvisioned
from tenuto.schemas.events.request import ExperimentCancelRequested, ExperimentResumeRequested, ExperimentSubmitted
from tenuto.schemas.events.run import (
    GangPartReported,
    GangRendezvousOpened,
    RestartPauseEnded,
    WorkersExited,
    WorkersStarted,
    WorkersStarting,
)
from tenuto.schemas.events.search import (
    ExperimentCanceled,
    ExperimentCompleted,
    ExperimentFailed,
    TrialExtended,
    TrialPaused,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import (
    CheckpointDeleted,
    CheckpointSaved,
    DataRecorded,
    EnvironmentRecorded,
    TrialFinished,
    ValidationReported,
    files_hash,
)
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.record import DATA_NAMES_MAX, KnownData
from tenuto.services.launcher.evolve import allocations, nodes
from tenuto.services.launcher.state import Experiment, State, Trial
from tenuto.services.launcher.state.indexes import put_experiment, put_trial, without_pause


def _submitted(state: State, data: ExperimentSubmitted) -> State:
    experiment = Experiment(data.experiment_id, data.config, data.seed, data.context_hash, parent=data.parent)
    return put_experiment(state, replace(experiment, data=data.parent.data) if data.parent else experiment)


def _cancel_requested(state: State, data: ExperimentCancelRequested) -> State:
    experiment = state.experiments.get(data.experiment_id)
    return state if experiment is None or not data.kill else put_experiment(state, replace(experiment, kill=True))


def _ended(state: State, data: ExperimentCompleted | ExperimentFailed | ExperimentCanceled) -> State:
    if data.experiment_id not in state.experiments:
        return state
    for trial_id in sorted(state.experiments[data.experiment_id].trials):
        state = without_pause(state, trial_id)
    return replace(state, experiments=state.experiments.delete(data.experiment_id))


def _requested(state: State, data: TrialRequested) -> State:
    experiment = state.experiments.get(data.experiment_id)
    if experiment is None:
        return state
    trial = Trial(
        trial_id=data.trial_id,
        number=data.trial_number,
        hyperparameters=data.hyperparameters,
        seed=data.seed,
        target_length=data.target_length,
        checkpoint=_start_of(experiment, data),
    )
    return put_trial(state, trial)


def _start_of(experiment: Experiment, data: TrialRequested) -> SourceCheckpoint | None:
    """The checkpoint that the search names, else the one of the same trial in the experiment that this one goes on with, else the
    weights that every trial begins with."""
    if data.source_checkpoint_id:
        return experiment.checkpoints.get(data.source_checkpoint_id)
    source = experiment.parent.source_of(data.trial_number, data.seed, data.hyperparameters) if experiment.parent else None
    if source is not None:
        return SourceCheckpoint(
            checkpoint_id=source.checkpoint_id,
            location=source.location,
            batches=source.batches,
            trusted_user=experiment.parent.trusted_user if experiment.parent else "",
        )
    start = experiment.config.searcher.source_checkpoint
    if start is None:
        return None
    return SourceCheckpoint(checkpoint_id=start.checkpoint_id, location=start.location, batches=start.batches, weights_only=True)


def _data_recorded(state: State, data: DataRecorded) -> State:
    experiment = state.experiments.get(experiment_of(data.trial_id))
    if experiment is None:
        return state
    known = KnownData(name=data.data.name, fingerprint=data.data.fingerprint, recorded_by=data.trial_id)
    if all(item.name != known.name for item in experiment.data):
        experiment = replace(experiment, data=_with_data(experiment.data, known))
        state = put_experiment(state, experiment)
    trial = experiment.trials.get(data.trial_id)
    return state if trial is None else put_trial(state, replace(trial, data=_with_data(trial.data, known)))


def _environment_recorded(state: State, data: EnvironmentRecorded) -> State:
    trial = state.trial(data.trial_id)
    return state if trial is None else put_trial(state, replace(trial, environment_hash=data.environment_hash))


def _with_data(items: tuple[KnownData, ...], known: KnownData) -> tuple[KnownData, ...]:
    """Sorted by name; beyond the bound a further name is not remembered."""
    others = tuple(item for item in items if item.name != known.name)
    if len(others) >= DATA_NAMES_MAX:
        return items
    return tuple(sorted((*others, known), key=lambda item: item.name))


def _extended(state: State, data: TrialExtended) -> State:
    trial = state.trial(data.trial_id)
    if trial is None or trial.phase == "stopped":
        return state
    return put_trial(state, replace(trial, phase="wanted", target_length=data.target_length))


def _paused(state: State, data: TrialPaused) -> State:
    trial = state.trial(data.trial_id)
    return state if trial is None or trial.phase == "stopped" else put_trial(state, replace(trial, phase="paused"))


def _stopped(state: State, data: TrialStopped) -> State:
    trial = state.trial(data.trial_id)
    if trial is None:
        return state
    return put_trial(state, replace(trial, phase="stopped", canceled=data.outcome == "canceled", pause_of=""))


def _finished(state: State, data: TrialFinished) -> State:
    experiment = state.experiments.get(experiment_of(data.trial_id))
    if experiment is None or data.trial_id not in experiment.trials:
        return state
    return put_experiment(
        without_pause(state, data.trial_id), replace(experiment, trials=experiment.trials.delete(data.trial_id))
    )


def _saved(state: State, data: CheckpointSaved) -> State:
    state = allocations.advanced(state, data)
    experiment = state.experiments.get(experiment_of(data.trial_id))
    if experiment is None:
        return state
    saved = SourceCheckpoint(
        checkpoint_id=data.checkpoint_id, location=data.location, batches=data.batches, files_hash=files_hash(data.files)
    )
    experiment = replace(experiment, checkpoints=experiment.checkpoints.set(data.checkpoint_id, saved))
    trial = experiment.trials.get(data.trial_id)
    state = put_experiment(state, experiment)
    if trial is None:
        return state
    earlier = (trial.checkpoint, *trial.earlier) if trial.checkpoint is not None else trial.earlier
    return put_trial(state, replace(trial, checkpoint=saved, earlier=earlier[:EARLIER_CHECKPOINTS_MAX]))


def _deleted(state: State, data: CheckpointDeleted) -> State:
    experiment = state.experiments.get(experiment_of(data.trial_id))
    if experiment is None or data.checkpoint_id not in experiment.checkpoints:
        return state
    state = put_experiment(state, replace(experiment, checkpoints=experiment.checkpoints.delete(data.checkpoint_id)))
    trial = experiment.trials.get(data.trial_id)
    if trial is None:
        return state
    return put_trial(
        state, replace(trial, earlier=tuple(item for item in trial.earlier if item.checkpoint_id != data.checkpoint_id))
    )


FOLDS: Folds[State] = Folds(
    "launcher",
    {
        ExperimentSubmitted: _submitted,
        ExperimentCancelRequested: _cancel_requested,
        ExperimentResumeRequested: unchanged,
        ExperimentCompleted: _ended,
        ExperimentFailed: _ended,
        ExperimentCanceled: _ended,
        TrialRequested: _requested,
        TrialExtended: _extended,
        TrialPaused: _paused,
        TrialStopped: _stopped,
        TrialFinished: _finished,
        CheckpointSaved: _saved,
        CheckpointDeleted: _deleted,
        ValidationReported: allocations.advanced,
        DataRecorded: _data_recorded,
        EnvironmentRecorded: _environment_recorded,
        AllocationGranted: WithEnvelope(nodes.granted),
        AllocationPreempted: allocations.preempted,
        AllocationResized: allocations.resized,
        WorkersStarting: allocations.starting,
        WorkersStarted: allocations.started,
        WorkersExited: WithEnvelope(nodes.exited),
        GangPartReported: WithEnvelope(nodes.part_reported),
        GangRendezvousOpened: allocations.rendezvous_opened,
        RestartPauseEnded: allocations.pause_ended,
        AgentJoined: WithEnvelope(nodes.joined),
        AgentLost: allocations.lost,
        AgentEnrolled: allocations.enrolled,
        AgentRevoked: allocations.revoked,
        PoolProvisioned: nodes.provisioned,
        PoolMountsChanged: nodes.mounts_changed,
        CapacityWanted: WithEnvelope(nodes.wanted),
        NodeReleaseRequested: unchanged,
        NodeRequested: WithEnvelope(nodes.requested),
        NodeStarted: WithEnvelope(nodes.started),
        NodeFailed: WithEnvelope(nodes.failed),
        NodeReleased: WithEnvelope(nodes.released),
        NodeEnded: nodes.ended,
    },
)
"""An event about an experiment, trial or allocation that is not live changes nothing."""
