"""Folds events into the launcher's state.

Long, because there is one short function for each type of event, all in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from immutables import Map

from tenuto.schemas.assignments import EARLIER_CHECKPOINTS_MAX, SourceCheckpoint
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationResized
from tenuto.schemas.events.request import ExperimentCancelRequested, ExperimentSubmitted
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
from tenuto.services.launcher.policies.restarts import setbacks_after
from tenuto.services.launcher.state import Agent, Allocation, Experiment, Part, State, Trial

Index = Map[str, tuple[str, ...]]


def evolve(state: State, event: Event) -> State:
    """An event about an experiment, trial or allocation that is not live changes nothing."""
    data = event.data
    if isinstance(data, AllocationGranted):
        return _granted(state, data, event.trace)
    step = _STEPS.get(event.type)
    return state if step is None else step(state, data)


def _submitted(state: State, data: ExperimentSubmitted) -> State:
    experiment = Experiment(data.experiment_id, data.config, data.seed, data.context_hash, parent=data.parent)
    return _put(state, replace(experiment, data=data.parent.data) if data.parent else experiment)


def _cancel_requested(state: State, data: ExperimentCancelRequested) -> State:
    experiment = state.experiments.get(data.experiment_id)
    return state if experiment is None or not data.kill else _put(state, replace(experiment, kill=True))


def _ended(state: State, data: ExperimentCompleted | ExperimentFailed | ExperimentCanceled) -> State:
    if data.experiment_id not in state.experiments:
        return state
    for trial_id in sorted(state.experiments[data.experiment_id].trials):
        state = _without_pause(state, trial_id)
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
    return _put_trial(state, trial)


def _start_of(experiment: Experiment, data: TrialRequested) -> SourceCheckpoint | None:
    """The checkpoint that the search names, else the one of the same trial in the experiment that this one goes on with, else the
    weights that every trial begins with."""
    if data.source_checkpoint_id:
        return experiment.checkpoints.get(data.source_checkpoint_id)
    source = experiment.parent.source_of(data.trial_number, data.seed) if experiment.parent else None
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
        state = _put(state, experiment)
    trial = experiment.trials.get(data.trial_id)
    return state if trial is None else _put_trial(state, replace(trial, data=_with_data(trial.data, known)))


def _environment_recorded(state: State, data: EnvironmentRecorded) -> State:
    trial = state.trial(data.trial_id)
    return state if trial is None else _put_trial(state, replace(trial, environment_hash=data.environment_hash))


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
    return _put_trial(state, replace(trial, phase="wanted", target_length=data.target_length))


def _paused(state: State, data: TrialPaused) -> State:
    trial = state.trial(data.trial_id)
    return state if trial is None or trial.phase == "stopped" else _put_trial(state, replace(trial, phase="paused"))


def _stopped(state: State, data: TrialStopped) -> State:
    trial = state.trial(data.trial_id)
    if trial is None:
        return state
    return _put_trial(state, replace(trial, phase="stopped", canceled=data.outcome == "canceled", pause_of=""))


def _finished(state: State, data: TrialFinished) -> State:
    experiment = state.experiments.get(experiment_of(data.trial_id))
    if experiment is None or data.trial_id not in experiment.trials:
        return state
    return _put(_without_pause(state, data.trial_id), replace(experiment, trials=experiment.trials.delete(data.trial_id)))


def _saved(state: State, data: CheckpointSaved) -> State:
    state = _advanced(state, data)
    experiment = state.experiments.get(experiment_of(data.trial_id))
    if experiment is None:
        return state
    saved = SourceCheckpoint(
        checkpoint_id=data.checkpoint_id, location=data.location, batches=data.batches, files_hash=files_hash(data.files)
    )
    experiment = replace(experiment, checkpoints=experiment.checkpoints.set(data.checkpoint_id, saved))
    trial = experiment.trials.get(data.trial_id)
    state = _put(state, experiment)
    if trial is None:
        return state
    earlier = (trial.checkpoint, *trial.earlier) if trial.checkpoint is not None else trial.earlier
    return _put_trial(state, replace(trial, checkpoint=saved, earlier=earlier[:EARLIER_CHECKPOINTS_MAX]))


def _advanced(state: State, data: CheckpointSaved | ValidationReported) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None or allocation.advanced:
        return state
    return _put_allocation(state, replace(allocation, advanced=True))


def _deleted(state: State, data: CheckpointDeleted) -> State:
    experiment = state.experiments.get(experiment_of(data.trial_id))
    if experiment is None or data.checkpoint_id not in experiment.checkpoints:
        return state
    state = _put(state, replace(experiment, checkpoints=experiment.checkpoints.delete(data.checkpoint_id)))
    trial = experiment.trials.get(data.trial_id)
    if trial is None:
        return state
    return _put_trial(
        state, replace(trial, earlier=tuple(item for item in trial.earlier if item.checkpoint_id != data.checkpoint_id))
    )


def _granted(state: State, data: AllocationGranted, trace: str) -> State:
    parts = tuple(Part(part.agent_id) for part in data.slots)
    allocation = Allocation(data.allocation_id, data.slots, parts, trace=trace)
    state = replace(
        state,
        allocations=state.allocations.set(data.allocation_id, allocation),
        of_trial=_added(state.of_trial, allocation.trial_id, data.allocation_id),
    )
    for part in parts:
        state = replace(state, on_agent=_added(state.on_agent, part.agent_id, data.allocation_id))
    return state


def _preempted(state: State, data: AllocationPreempted) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None:
        return state
    return _put_allocation(state, replace(allocation, preempted=True, kill=allocation.kill or data.kill))


def _resized(state: State, data: AllocationResized) -> State:
    """Its workers save and leave like preempted ones; the scheduler grants the trial its new slots then."""
    allocation = state.allocations.get(data.allocation_id)
    return state if allocation is None else _put_allocation(state, replace(allocation, preempted=True))


def _starting(state: State, data: WorkersStarting) -> State:
    allocation = state.allocations.get(data.allocation_id)
    return state if allocation is None else _put_allocation(state, replace(allocation, starting=True))


def _started(state: State, data: WorkersStarted) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None:
        return state
    parts = tuple(replace(part, started=True) for part in allocation.parts)
    return _put_allocation(state, replace(allocation, starting=True, started=True, parts=parts))


def _part_reported(state: State, data: GangPartReported) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None or allocation.part(data.agent_id) is None:
        return state
    if data.step == "started":
        parts = tuple(replace(p, started=True) if p.agent_id == data.agent_id else p for p in allocation.parts)
        return _put_allocation(state, replace(allocation, parts=parts))
    parts = tuple(
        replace(p, outcome=data.outcome, exit_code=data.exit_code, error=data.error) if p.agent_id == data.agent_id else p
        for p in allocation.parts
    )
    broken = data.outcome in ("failed", "lost")
    first, followed = allocation.first_exit, allocation.first_followed
    if broken and (not first or (followed and not data.followed)):
        first, followed = data.agent_id, data.followed
    state = _put_allocation(state, replace(allocation, parts=parts, first_exit=first, first_followed=followed))
    return replace(state, on_agent=_removed(state.on_agent, data.agent_id, data.allocation_id))


def _rendezvous_opened(state: State, data: GangRendezvousOpened) -> State:
    allocation = state.allocations.get(data.allocation_id)
    return state if allocation is None else _put_allocation(state, replace(allocation, rendezvous=data.address))


def _exited(state: State, data: WorkersExited) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None:
        return state
    state = _set_back(state, allocation, data)
    on_agent = state.on_agent
    for part in allocation.parts:
        on_agent = _removed(on_agent, part.agent_id, data.allocation_id)
    return replace(
        state,
        allocations=state.allocations.delete(data.allocation_id),
        on_agent=on_agent,
        of_trial=_removed(state.of_trial, allocation.trial_id, data.allocation_id),
    )


def _set_back(state: State, allocation: Allocation, data: WorkersExited) -> State:
    trial = state.trial(data.trial_id)
    if trial is None:
        return state
    setbacks = setbacks_after(trial.setbacks, data.outcome, advanced=allocation.advanced)
    pause_of = data.allocation_id if data.restart_at_us is not None and trial.phase != "stopped" else ""
    return _put_trial(state, replace(trial, setbacks=setbacks, pause_of=pause_of, restart_at_us=data.restart_at_us or 0))


def _pause_ended(state: State, data: RestartPauseEnded) -> State:
    trial = state.trial(data.trial_id)
    if trial is None or trial.pause_of != data.allocation_id:
        return state
    return _put_trial(state, replace(trial, pause_of=""))


def _joined(state: State, data: AgentJoined) -> State:
    agent = Agent(data.agent_id, data.pool, data.host, data.version, data.slots, data.labels, data.auxiliary_trials_max)
    return replace(state, agents=state.agents.set(data.agent_id, agent))


def _lost(state: State, data: AgentLost) -> State:
    return replace(state, agents=state.agents.delete(data.agent_id)) if data.agent_id in state.agents else state


def _put(state: State, experiment: Experiment) -> State:
    return replace(state, experiments=state.experiments.set(experiment.experiment_id, experiment))


def _put_trial(state: State, trial: Trial) -> State:
    experiment = state.experiments[experiment_of(trial.trial_id)]
    if trial.pause_of:
        state = replace(state, pauses=state.pauses.set(trial.trial_id, trial.restart_at_us))
    else:
        state = _without_pause(state, trial.trial_id)
    return _put(state, replace(experiment, trials=experiment.trials.set(trial.trial_id, trial)))


def _without_pause(state: State, trial_id: str) -> State:
    return replace(state, pauses=state.pauses.delete(trial_id)) if trial_id in state.pauses else state


def _put_allocation(state: State, allocation: Allocation) -> State:
    return replace(state, allocations=state.allocations.set(allocation.allocation_id, allocation))


def _added(index: Index, key: str, item: str) -> Index:
    items = index.get(key, ())
    return index if item in items else index.set(key, tuple(sorted((*items, item))))


def _removed(index: Index, key: str, item: str) -> Index:
    """Keeps no empty lists, so that an index is a function of the allocations alone."""
    items = tuple(other for other in index.get(key, ()) if other != item)
    if items:
        return index.set(key, items)
    return index.delete(key) if key in index else index


_STEPS: dict[str, Callable[[State, Any], State]] = {
    "ExperimentSubmitted": _submitted,
    "ExperimentCancelRequested": _cancel_requested,
    "ExperimentCompleted": _ended,
    "ExperimentFailed": _ended,
    "ExperimentCanceled": _ended,
    "TrialRequested": _requested,
    "TrialExtended": _extended,
    "TrialPaused": _paused,
    "TrialStopped": _stopped,
    "TrialFinished": _finished,
    "CheckpointSaved": _saved,
    "ValidationReported": _advanced,
    "CheckpointDeleted": _deleted,
    "DataRecorded": _data_recorded,
    "EnvironmentRecorded": _environment_recorded,
    "AllocationPreempted": _preempted,
    "AllocationResized": _resized,
    "WorkersStarting": _starting,
    "WorkersStarted": _started,
    "GangPartReported": _part_reported,
    "GangRendezvousOpened": _rendezvous_opened,
    "WorkersExited": _exited,
    "RestartPauseEnded": _pause_ended,
    "AgentJoined": _joined,
    "AgentLost": _lost,
}
