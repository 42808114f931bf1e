"""Folds what becomes of allocations, their workers and the agents that run them."""

from __future__ import annotations

from dataclasses import replace

from tenuto.kernel.folding import Envelope
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.joining import AgentEnrolled, AgentRevoked
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationResized
from tenuto.schemas.events.run import (
    GangPartReported,
    GangRendezvousOpened,
    RestartPauseEnded,
    WorkersExited,
    WorkersStarted,
    WorkersStarting,
)
from tenuto.schemas.events.trial import CheckpointSaved, ValidationReported
from tenuto.services.launcher.state import Allocation, Part, State
from tenuto.services.launcher.state.indexes import added, put_allocation, put_trial, removed
from tenuto.services.launcher.state.leaving import was_asked
from tenuto.services.launcher.state.nodes import node_has_ended
from tenuto.services.launcher.state.restarts import after


def granted(state: State, data: AllocationGranted, envelope: Envelope) -> State:
    parts = tuple(Part(part.agent_id) for part in data.slots)
    allocation = Allocation(data.allocation_id, data.slots, parts, trace=envelope.trace)
    state = replace(
        state,
        allocations=state.allocations.set(data.allocation_id, allocation),
        of_trial=added(state.of_trial, allocation.trial_id, data.allocation_id),
    )
    for part in parts:
        state = replace(state, on_agent=added(state.on_agent, part.agent_id, data.allocation_id))
    return state


def preempted(state: State, data: AllocationPreempted) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None:
        return state
    return put_allocation(state, replace(allocation, preempted=True, kill=allocation.kill or data.kill))


def resized(state: State, data: AllocationResized) -> State:
    """The allocation's workers save and leave like preempted ones; then the scheduler grants the trial its new slots."""
    allocation = state.allocations.get(data.allocation_id)
    return state if allocation is None else put_allocation(state, replace(allocation, preempted=True))


def starting(state: State, data: WorkersStarting) -> State:
    allocation = state.allocations.get(data.allocation_id)
    return state if allocation is None else put_allocation(state, replace(allocation, starting=True))


def started(state: State, data: WorkersStarted) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None:
        return state
    parts = tuple(replace(part, started=True) for part in allocation.parts)
    return put_allocation(state, replace(allocation, starting=True, started=True, parts=parts))


def part_reported(state: State, data: GangPartReported) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None or allocation.part(data.agent_id) is None:
        return state
    if data.step == "started":
        parts = tuple(replace(p, started=True) if p.agent_id == data.agent_id else p for p in allocation.parts)
        return put_allocation(state, replace(allocation, parts=parts))
    parts = tuple(
        replace(p, outcome=data.outcome, exit_code=data.exit_code, error=data.error, cause=data.cause)
        if p.agent_id == data.agent_id
        else p
        for p in allocation.parts
    )
    broken = data.outcome in ("failed", "lost")
    first, followed = allocation.first_exit, allocation.first_followed
    # The part that broke first speaks for the gang, unless it only followed one that reports now.
    if broken and (not first or (followed and not data.followed)):
        first, followed = data.agent_id, data.followed
    state = put_allocation(state, replace(allocation, parts=parts, first_exit=first, first_followed=followed))
    return replace(state, on_agent=removed(state.on_agent, data.agent_id, data.allocation_id))


def rendezvous_opened(state: State, data: GangRendezvousOpened) -> State:
    allocation = state.allocations.get(data.allocation_id)
    return state if allocation is None else put_allocation(state, replace(allocation, rendezvous=data.address))


def exited(state: State, data: WorkersExited) -> State:
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None:
        return state
    state = _set_back(state, allocation, data)
    on_agent = state.on_agent
    for part in allocation.parts:
        on_agent = removed(on_agent, part.agent_id, data.allocation_id)
    return replace(
        state,
        allocations=state.allocations.delete(data.allocation_id),
        on_agent=on_agent,
        of_trial=removed(state.of_trial, allocation.trial_id, data.allocation_id),
    )


def _set_back(state: State, allocation: Allocation, data: WorkersExited) -> State:
    trial = state.trial(data.trial_id)
    if trial is None:
        return state
    standstill = after(trial.standstill, data.outcome, asked=was_asked(trial, allocation), advanced=allocation.advanced)
    pause_of = data.allocation_id if data.restart_at_us is not None and trial.phase != "stopped" else ""
    return put_trial(state, replace(trial, standstill=standstill, pause_of=pause_of, restart_at_us=data.restart_at_us or 0))


def pause_ended(state: State, data: RestartPauseEnded) -> State:
    trial = state.trial(data.trial_id)
    if trial is None or trial.pause_of != data.allocation_id:
        return state
    return put_trial(state, replace(trial, pause_of=""))


def joined(state: State, data: AgentJoined) -> State:
    return replace(state, agents=state.agents.set(data.agent_id, data))


def lost(state: State, data: AgentLost) -> State:
    return replace(state, agents=state.agents.delete(data.agent_id)) if data.agent_id in state.agents else state


def enrolled(state: State, data: AgentEnrolled) -> State:
    if node_has_ended(state.pools, data.agent_id):
        return state
    return replace(state, members=state.members.set(data.agent_id, data.pool))


def revoked(state: State, data: AgentRevoked) -> State:
    """The name of a node that has ended is never used again, so it need not be remembered."""
    if node_has_ended(state.pools, data.agent_id):
        return state
    return replace(state, members=state.members.set(data.agent_id, ""))


def advanced(state: State, data: CheckpointSaved | ValidationReported) -> State:
    """State with the allocation's progress noted. Runs before the checkpoint becomes that of the trial. A checkpoint at the place
    of the last one, which a run that trains nothing may save, is no progress; a second result of one place is not recorded at
    all."""
    allocation, trial = state.allocations.get(data.allocation_id), state.trial(data.trial_id)
    if allocation is None or trial is None or allocation.advanced:
        return state
    last = trial.checkpoint
    if isinstance(data, CheckpointSaved) and last is not None and not last.weights_only and data.batches <= last.batches:
        return state
    return put_allocation(state, replace(allocation, advanced=True))
