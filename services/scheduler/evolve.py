"""How each event changes the state. Total: whatever was validly recorded can be folded; facts about trials, experiments and
allocations that are over change nothing.

Long, because there is one short function for each type of event, all in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tenuto.schemas.config.experiment import ExperimentConfig
from tenuto.schemas.config.resources import Resources, SlotRange
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events import agent as agents
from tenuto.schemas.events import pool as pools
from tenuto.schemas.events import request as requests
from tenuto.schemas.events import run as runs
from tenuto.schemas.events import search as searches
from tenuto.schemas.events import trial as trials
from tenuto.services.scheduler import allocations, indexes
from tenuto.services.scheduler.indexes import trial_of
from tenuto.services.scheduler.state import (
    Agent,
    Allocation,
    Closed,
    Constraints,
    Experiment,
    Leaving,
    Phase,
    PoolPolicy,
    Share,
    State,
    Trial,
)


def evolve(state: State, event: Event) -> State:
    return apply(state, event.data, event.time_us)


def apply(state: State, data: EventData, now_us: int) -> State:
    fold = _FOLDS.get(data.TYPE)
    if fold:
        return fold(state, data)
    timed = _TIMED_FOLDS.get(data.TYPE)
    return timed(state, data, now_us) if timed else state


# Requests of users


def _submitted(state: State, data: requests.ExperimentSubmitted, now_us: int) -> State:
    resources = data.config.resources
    return indexes.put_experiment(
        state,
        Experiment(
            experiment_id=data.experiment_id,
            pool=resources.pool,
            priority=resources.priority,
            slots_per_trial=resources.slots_min,
            max_slots=resources.max_slots,
            place=float(data.experiment_id),
            weight=resources.weight,
            workspace=resources.workspace,
            user=data.user,
            preemptible=resources.preemptible,
            idle_since_us=now_us,
            expected_us=None if resources.expected_seconds is None else round(resources.expected_seconds * 1e6),
            fallback_pools=resources.fallback_pools,
            constraints=_constraints(resources),
            **_elastic(data.config),
        ),
    )


def _elastic(config: ExperimentConfig) -> dict[str, Any]:
    slots = config.resources.slots_per_trial
    if not isinstance(slots, SlotRange) or slots.max == slots.min:
        return {}
    at_once = getattr(config.searcher, "max_concurrent_trials", 1)
    trials = getattr(config.searcher, "max_trials", at_once)
    return {"slots_most": slots.max, "keep_us": round(slots.keep_seconds * 1e6), "width": min(at_once, trials)}


def _constraints(resources: Resources) -> Constraints | None:
    asked = Constraints(
        locality=resources.locality,
        placement=resources.placement,
        device=(resources.device or "").lower(),
        labels=tuple(sorted(resources.agent_labels)),
        exclude=tuple(sorted(resources.exclude_agents)),
    )
    return None if asked == Constraints() else asked


def _change_experiment(state: State, experiment_id: int, **changes: Any) -> State:
    experiment = state.experiments.get(experiment_id)
    return indexes.put_experiment(state, replace(experiment, **changes)) if experiment else state


def _paused(state: State, data: requests.ExperimentPauseRequested) -> State:
    return _change_experiment(state, data.experiment_id, paused=True, reserved_us=0)


def _resumed(state: State, data: requests.ExperimentResumeRequested) -> State:
    return _change_experiment(state, data.experiment_id, paused=False)


def _priority_changed(state: State, data: requests.ExperimentPriorityChanged) -> State:
    return _change_experiment(state, data.experiment_id, priority=data.priority, reserved_us=0)


def _slot_limit_changed(state: State, data: requests.ExperimentSlotLimitChanged) -> State:
    return _change_experiment(state, data.experiment_id, max_slots=data.max_slots)


def _weight_changed(state: State, data: requests.ExperimentWeightChanged) -> State:
    return _change_experiment(state, data.experiment_id, weight=data.weight)


def _moved(state: State, data: requests.ExperimentMoved) -> State:
    return _change_experiment(state, data.experiment_id, place=data.place, reserved_us=0)


def _pool_changed(state: State, data: requests.ExperimentPoolChanged) -> State:
    experiment = state.experiments.get(data.experiment_id)
    if experiment is None:
        return state
    fallback = tuple(name for name in experiment.fallback_pools if name != data.pool)
    # In two steps, out of the old pools' queues and into the new ones'.
    state = indexes.put_experiment(state, replace(experiment, waiting=()))
    return indexes.put_experiment(state, replace(experiment, pool=data.pool, fallback_pools=fallback, reserved_us=0))


def _policy_changed(state: State, data: requests.PoolPolicyChanged, now_us: int) -> State:
    half_life_us = 0 if data.usage_half_life_hours is None else round(data.usage_half_life_hours * 3_600_000_000)
    return allocations.set_policy(state, data.pool, PoolPolicy(data.policy, half_life_us), now_us, data.preempt)


def _share_changed(state: State, data: requests.ShareChanged) -> State:
    share = Share(data.weight, data.max_slots)
    return replace(state, shares=state.shares.set(f"{data.owner}/{data.name}", share))


def _slots_closed(state: State, data: requests.SlotsClosed) -> State:
    closed = state.closed.get(data.agent_id) or Closed()
    if data.slot_id is None:
        closed = replace(closed, agent=True)
    else:
        closed = replace(closed, slots=indexes.with_item(closed.slots, data.slot_id))
    return _set_closed(state, data.agent_id, closed)


def _slots_opened(state: State, data: requests.SlotsOpened) -> State:
    closed = state.closed.get(data.agent_id) or Closed()
    slots = () if data.slot_id is None else indexes.without_item(closed.slots, data.slot_id)
    return _set_closed(state, data.agent_id, Closed(closed.agent and data.slot_id is not None, slots))


def _set_closed(state: State, agent_id: str, closed: Closed) -> State:
    if closed == Closed():
        state = replace(state, closed=state.closed.delete(agent_id)) if agent_id in state.closed else state
    else:
        state = replace(state, closed=state.closed.set(agent_id, closed))
    agent = state.agents.get(agent_id)
    return indexes.put_agent(state, replace(agent, closed=state.closed.get(agent_id))) if agent else state


def _cancel_requested(state: State, data: requests.ExperimentCancelRequested) -> State:
    """No more grants; the launcher makes the workers leave, and the search stops the trials."""
    return _all_leave(_change_experiment(state, data.experiment_id, canceled=True), data.experiment_id)


def _all_leave(state: State, experiment_id: int) -> State:
    experiment = state.experiments.get(experiment_id)
    for allocation_id in experiment.allocations if experiment else ():
        state = _leave(state, allocation_id, "experiment_canceled")
    return state


# The search


def _trial_requested(state: State, data: searches.TrialRequested) -> State:
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


def _leave(state: State, allocation_id: str, leaving: Leaving) -> State:
    """The first reason to leave stays, except that a mere pause of the trial can be taken back by an extension, and that a
    resized one may have to leave for good."""
    allocation = state.allocations.get(allocation_id)
    if allocation is None or allocation.leaving not in ("", "trial_paused", "resized"):
        return state
    if allocation.leaving == "resized" and leaving == "trial_paused":
        return state  # It leaves anyway, and goes on with its new slots only if it is wanted then.
    return allocations.mark_leaving(state, allocation, leaving)


def _leave_trial(state: State, trial_id: str, leaving: Leaving) -> State:
    found = trial_of(state, trial_id)
    return _leave(state, found[1].allocation_id, leaving) if found else state


def _trial_extended(state: State, data: searches.TrialExtended) -> State:
    state = _enter_phase(state, data.trial_id, "wanted")
    found = trial_of(state, data.trial_id)
    allocation = state.allocations.get(found[1].allocation_id) if found and found[1].phase == "wanted" else None
    if allocation and allocation.leaving == "trial_paused":
        return allocations.mark_leaving(state, allocation, "")
    return state


def _trial_paused(state: State, data: searches.TrialPaused) -> State:
    return _leave_trial(_enter_phase(state, data.trial_id, "paused"), data.trial_id, "trial_paused")


def _trial_stopped(state: State, data: searches.TrialStopped) -> State:
    return _leave_trial(_enter_phase(state, data.trial_id, "stopped"), data.trial_id, "trial_stopped")


def _experiment_ended(
    state: State, data: searches.ExperimentCompleted | searches.ExperimentFailed | searches.ExperimentCanceled
) -> State:
    return _change_experiment(_all_leave(state, data.experiment_id), data.experiment_id, ended=True)


# Agents


def _agent_joined(state: State, data: agents.AgentJoined) -> State:
    """An agent that was not lost and comes with other slots stays drained; one that comes back starts anew."""
    old = state.agents.get(data.agent_id)
    known = old if old and not old.lost else None
    kind = "cuda" if any(slot.kind == "cuda" for slot in data.slots) else "cpu"
    joined = Agent(
        agent_id=data.agent_id,
        pool=data.pool,
        kind=kind,
        slots=tuple(sorted({slot.slot_id for slot in data.slots if slot.kind == kind})),
        labels=tuple(sorted(data.labels)),
        devices=tuple(sorted({slot.device.lower() for slot in data.slots if slot.kind == kind})),
        closed=state.closed.get(data.agent_id),
        disabled=known.disabled if known else (),
        drained=known.drained if known else False,
        used=old.used if old else (),
        auxiliary_max=data.auxiliary_trials_max,
        auxiliary=old.auxiliary if old else (),
    )
    return indexes.put_agent(state, joined)


def _agent_lost(state: State, data: agents.AgentLost) -> State:
    agent = state.agents.get(data.agent_id)
    if agent is None or agent.lost:
        return state
    state = indexes.put_agent(state, replace(agent, lost=True))
    for allocation_id in sorted({*(allocation_id for _, allocation_id in agent.used), *agent.auxiliary}):
        state = _leave(state, allocation_id, "agent_lost")
    return state


def _agent_drained(state: State, data: agents.AgentDrained) -> State:
    agent = state.agents.get(data.agent_id)
    return indexes.put_agent(state, replace(agent, drained=True)) if agent and not agent.lost else state


def _slot_enabled(state: State, data: agents.SlotEnabled) -> State:
    agent = state.agents.get(data.agent_id)
    if agent is None or agent.lost:
        return state
    return indexes.put_agent(state, replace(agent, disabled=indexes.without_item(agent.disabled, data.slot_id)))


def _slot_disabled(state: State, data: agents.SlotDisabled) -> State:
    agent = state.agents.get(data.agent_id)
    if agent is None or agent.lost:
        return state
    return indexes.put_agent(state, replace(agent, disabled=indexes.with_item(agent.disabled, data.slot_id)))


# Workers


def _workers_exited(state: State, data: runs.WorkersExited) -> State:
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


def _pause_ended(state: State, data: runs.RestartPauseEnded) -> State:
    found = trial_of(state, data.trial_id)
    if found is None or found[1].pause_of != data.allocation_id:
        return state
    experiment, trial = found
    return indexes.put_trial(state, experiment, replace(trial, pause_of=""))


def _trial_failed(state: State, data: trials.TrialFailed) -> State:
    if data.final:
        state = _enter_phase(state, data.trial_id, "failed")
    found = trial_of(state, data.trial_id)
    if found is None or found[1].verdict_of != data.allocation_id:
        return state
    experiment, trial = found
    return indexes.put_trial(state, experiment, replace(trial, verdict_of=""))


def _log_matched(state: State, data: trials.LogMatched) -> State:
    found = trial_of(state, data.trial_id)
    if found is None or data.action != "exclude_agent":
        return state
    experiment, trial = found
    return indexes.put_trial(state, experiment, replace(trial, excluded=indexes.with_item(trial.excluded, data.agent_id)))


# The scheduler's own


def _checkpoint_saved(state: State, data: trials.CheckpointSaved, now_us: int) -> State:
    allocation = state.allocations.get(data.allocation_id)
    return allocations.saved_checkpoint(state, allocation, now_us) if allocation else state


def _granted(state: State, data: pools.AllocationGranted, now_us: int) -> State:
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
            granted_us=now_us,
            since_us=now_us,
            backfill_until_us=data.backfill_until_us,
        ),
        data.turn_until_us or 0,
    )


def _preempted(state: State, data: pools.AllocationPreempted) -> State:
    return _leave(state, data.allocation_id, "preempted")


def _reserved(state: State, data: pools.SlotsReserved, now_us: int) -> State:
    return _change_experiment(state, data.experiment_id, reserved_us=now_us)


def _resized(state: State, data: pools.AllocationResized) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None or allocation.leaving not in ("", "resized"):
        return state
    return allocations.resize(state, allocation, tuple((part.agent_id, part.slot_ids) for part in data.slots))


def _released(state: State, data: pools.AllocationReleased, now_us: int) -> State:
    allocation = state.allocations.get(data.allocation_id)
    return allocations.remove_allocation(state, allocation, now_us) if allocation else state


_FOLDS: dict[str, Callable[[State, Any], State]] = {
    "ExperimentPauseRequested": _paused,
    "ExperimentResumeRequested": _resumed,
    "ExperimentCancelRequested": _cancel_requested,
    "ExperimentPriorityChanged": _priority_changed,
    "ExperimentSlotLimitChanged": _slot_limit_changed,
    "TrialRequested": _trial_requested,
    "TrialExtended": _trial_extended,
    "TrialPaused": _trial_paused,
    "TrialStopped": _trial_stopped,
    "ExperimentCompleted": _experiment_ended,
    "ExperimentFailed": _experiment_ended,
    "ExperimentCanceled": _experiment_ended,
    "AgentJoined": _agent_joined,
    "AgentLost": _agent_lost,
    "AgentDrained": _agent_drained,
    "SlotEnabled": _slot_enabled,
    "SlotDisabled": _slot_disabled,
    "WorkersExited": _workers_exited,
    "RestartPauseEnded": _pause_ended,
    "TrialFailed": _trial_failed,
    "LogMatched": _log_matched,
    "AllocationPreempted": _preempted,
    "AllocationResized": _resized,
    "ExperimentWeightChanged": _weight_changed,
    "ExperimentMoved": _moved,
    "ExperimentPoolChanged": _pool_changed,
    "ShareChanged": _share_changed,
    "SlotsClosed": _slots_closed,
    "SlotsOpened": _slots_opened,
}
_TIMED_FOLDS: dict[str, Callable[[State, Any, int], State]] = {
    "ExperimentSubmitted": _submitted,
    "AllocationGranted": _granted,
    "AllocationReleased": _released,
    "SlotsReserved": _reserved,
    "CheckpointSaved": _checkpoint_saved,
    "PoolPolicyChanged": _policy_changed,
}
OWN = frozenset({"AllocationGranted", "AllocationPreempted", "AllocationResized", "AllocationReleased", "SlotsReserved"})
CONSUMED = (frozenset(_FOLDS) | frozenset(_TIMED_FOLDS)) - OWN
