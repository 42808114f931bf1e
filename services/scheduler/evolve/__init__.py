"""Fold of each event into the state. Total: whatever was validly recorded can be folded; facts about trials, experiments and
allocations that are over change nothing.

Here are the folds of the search's, the workers' and the scheduler's own events; `requests.py` and `agents.py` have the others."""

from __future__ import annotations

from dataclasses import replace

from tenuto.kernel.folding import DraftEnvelope, Envelope, Folds, WithEnvelope
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.node import NodeEnded, NodeFailed, NodeReleased
from tenuto.schemas.events.pool import (
    AllocationGranted,
    AllocationPreempted,
    AllocationReleased,
    AllocationResized,
    CapacityWanted,
    SlotsReserved,
)
from tenuto.schemas.events.provisioning import PoolProvisioned
from tenuto.schemas.events.request import (
    ExperimentCancelRequested,
    ExperimentMoved,
    ExperimentPauseRequested,
    ExperimentPoolChanged,
    ExperimentPriorityChanged,
    ExperimentResumeRequested,
    ExperimentSlotLimitChanged,
    ExperimentSubmitted,
    ExperimentWeightChanged,
    PoolPolicyChanged,
    ShareChanged,
    SlotsClosed,
    SlotsOpened,
)
from tenuto.schemas.events.run import RestartPauseEnded, WorkersExited
from tenuto.schemas.events.search import (
    ExperimentCanceled,
    ExperimentCompleted,
    ExperimentFailed,
    TrialExtended,
    TrialPaused,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import CheckpointSaved, LogMatched, TrialFailed
from tenuto.services.scheduler.evolve import agents, nodes, requests
from tenuto.services.scheduler.state import (
    Allocation,
    Leaving,
    Phase,
    State,
    Trial,
    allocations,
    indexes,
)
from tenuto.services.scheduler.state.indexes import trial_of

# The search


def _trial_requested(state: State, data: TrialRequested) -> State:
    experiment = state.experiments.get(data.experiment_id)
    if experiment is None or data.trial_number in experiment.trials:
        return state
    return indexes.put_trial(state, experiment, Trial(data.trial_number))


def _enter_phase(state: State, trial_id: str, phase: Phase) -> State:
    found = trial_of(state, trial_id)
    if found is None:
        return state
    experiment, trial = found
    if trial.phase in ("failed", "stopped") and phase != "stopped":
        return state  # What is given up stays so, even if the search extended it before it knew.
    return indexes.put_trial(state, experiment, replace(trial, phase=phase))


def _leave_trial(state: State, trial_id: str, leaving: Leaving) -> State:
    found = trial_of(state, trial_id)
    return allocations.leave(state, found[1].allocation_id, leaving) if found else state


def _trial_extended(state: State, data: TrialExtended) -> State:
    state = _enter_phase(state, data.trial_id, "wanted")
    found = trial_of(state, data.trial_id)
    allocation = state.allocations.get(found[1].allocation_id) if found and found[1].phase == "wanted" else None
    if allocation and allocation.leaving == "trial_paused":
        return allocations.mark_leaving(state, allocation, "")
    return state


def _trial_paused(state: State, data: TrialPaused) -> State:
    return _leave_trial(_enter_phase(state, data.trial_id, "paused"), data.trial_id, "trial_paused")


def _trial_stopped(state: State, data: TrialStopped) -> State:
    return _leave_trial(_enter_phase(state, data.trial_id, "stopped"), data.trial_id, "trial_stopped")


def _experiment_ended(state: State, data: ExperimentCompleted | ExperimentFailed | ExperimentCanceled) -> State:
    return indexes.change_experiment(allocations.all_leave(state, data.experiment_id), data.experiment_id, ended=True)


# Workers


def _workers_exited(state: State, data: WorkersExited) -> State:
    """The slots stay taken until AllocationReleased, which follows at once."""
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None:
        return state
    state = allocations.mark_leaving(state, allocation, "exited", data.outcome)
    found = trial_of(state, data.trial_id)
    if found and (data.outcome == "failed" or data.restart_at_us is not None):
        experiment, trial = found
        verdict_of = data.allocation_id if data.outcome == "failed" else trial.verdict_of
        pause_of = data.allocation_id if data.restart_at_us is not None else ""
        state = indexes.put_trial(state, experiment, replace(trial, verdict_of=verdict_of, pause_of=pause_of))
    return state


def _pause_ended(state: State, data: RestartPauseEnded) -> State:
    found = trial_of(state, data.trial_id)
    if found is None or found[1].pause_of != data.allocation_id:
        return state
    experiment, trial = found
    return indexes.put_trial(state, experiment, replace(trial, pause_of=""))


def _trial_failed(state: State, data: TrialFailed) -> State:
    if data.final:
        state = _enter_phase(state, data.trial_id, "failed")
    found = trial_of(state, data.trial_id)
    if found is None or found[1].verdict_of != data.allocation_id:
        return state
    experiment, trial = found
    return indexes.put_trial(state, experiment, replace(trial, verdict_of=""))


def _log_matched(state: State, data: LogMatched) -> State:
    found = trial_of(state, data.trial_id)
    if found is None or data.action != "exclude_agent":
        return state
    experiment, trial = found
    return indexes.put_trial(state, experiment, replace(trial, excluded=indexes.with_item(trial.excluded, data.agent_id)))


# The scheduler's own


def _checkpoint_saved(state: State, data: CheckpointSaved, envelope: Envelope) -> State:
    allocation = state.allocations.get(data.allocation_id)
    return allocations.saved_checkpoint(state, allocation, envelope.time_us) if allocation else state


def _granted(state: State, data: AllocationGranted, envelope: Envelope) -> State:
    found = trial_of(state, data.trial_id)
    if found is None:
        return state
    return allocations.add_allocation(
        state,
        Allocation(
            allocation_id=data.allocation_id,
            experiment_id=data.experiment_id,
            trial_number=found[1].number,
            pool=data.pool,
            slots=tuple((part.agent_id, part.slot_ids) for part in data.slots),
            grant=state.grants + 1,
            granted_us=envelope.time_us,
            since_us=envelope.time_us,
            backfill_until_us=data.backfill_until_us,
        ),
        data.turn_until_us or 0,
    )


def _preempted(state: State, data: AllocationPreempted) -> State:
    return allocations.leave(state, data.allocation_id, "preempted")


def _reserved(state: State, data: SlotsReserved, envelope: Envelope) -> State:
    return indexes.change_experiment(state, data.experiment_id, reserved_us=envelope.time_us)


def _resized(state: State, data: AllocationResized) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None or allocation.leaving not in ("", "resized"):
        return state
    return allocations.resize(state, allocation, tuple((part.agent_id, part.slot_ids) for part in data.slots))


def _released(state: State, data: AllocationReleased, envelope: Envelope) -> State:
    allocation = state.allocations.get(data.allocation_id)
    return allocations.remove_allocation(state, allocation, envelope.time_us) if allocation else state


FOLDS: Folds[State] = Folds(
    "scheduler",
    {
        ExperimentSubmitted: WithEnvelope(requests.submitted),
        ExperimentPauseRequested: requests.paused,
        ExperimentResumeRequested: requests.resumed,
        ExperimentCancelRequested: requests.cancel_requested,
        ExperimentPriorityChanged: requests.priority_changed,
        ExperimentSlotLimitChanged: requests.slot_limit_changed,
        ExperimentWeightChanged: requests.weight_changed,
        ExperimentMoved: requests.moved,
        ExperimentPoolChanged: requests.pool_changed,
        PoolPolicyChanged: WithEnvelope(requests.policy_changed),
        ShareChanged: requests.share_changed,
        SlotsClosed: requests.slots_closed,
        SlotsOpened: requests.slots_opened,
        TrialRequested: _trial_requested,
        TrialExtended: _trial_extended,
        TrialPaused: _trial_paused,
        TrialStopped: _trial_stopped,
        ExperimentCompleted: _experiment_ended,
        ExperimentFailed: _experiment_ended,
        ExperimentCanceled: _experiment_ended,
        AgentJoined: agents.joined,
        AgentLost: agents.lost,
        PoolProvisioned: nodes.pool_provisioned,
        NodeReleased: nodes.ends,
        NodeFailed: nodes.ends,
        NodeEnded: nodes.ended,
        WorkersExited: _workers_exited,
        RestartPauseEnded: _pause_ended,
        CheckpointSaved: WithEnvelope(_checkpoint_saved),
        TrialFailed: _trial_failed,
        LogMatched: _log_matched,
        AllocationGranted: WithEnvelope(_granted),
        AllocationPreempted: _preempted,
        AllocationResized: _resized,
        AllocationReleased: WithEnvelope(_released),
        SlotsReserved: WithEnvelope(_reserved),
        CapacityWanted: nodes.capacity_wanted,
    },
)
evolve = FOLDS.evolve


def apply(state: State, data: EventData, now_us: int) -> State:
    """Same as `evolve`, but for an event that is only being decided."""
    return FOLDS.apply(state, data, DraftEnvelope(now_us))
