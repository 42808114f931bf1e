"""What follows from an event: allocations are released, preempted for their experiment's sake, and the pool is planned anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenuto.kernel.core import Command, Refused
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import Agent as AgentData
from tenuto.schemas.events.pool import AllocationPreempted, AllocationReleased
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import Request
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.events.search import Search
from tenuto.schemas.events.trial import Trial as TrialData
from tenuto.schemas.ids import experiment_of, trial_id
from tenuto.services.scheduler.evolve import CONSUMED, apply
from tenuto.services.scheduler.policies import priority
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State

Policy = Callable[[State, Pool], list[EventData]]


def decide(state: State, cause: Event | Command, policy: Policy = priority.plan) -> Sequence[EventData]:
    """Called with the cause folded in. The scheduler takes no commands."""
    if not isinstance(cause, Event):
        raise Refused("The scheduler takes no commands; it follows the log.", "invalid")
    if cause.type not in CONSUMED:
        return ()
    data = cause.data
    if isinstance(data, AgentData):
        # An agent may have changed its pool. Such events are rare, so all pools are planned.
        return _planned(state, sorted(state.pools), policy)
    experiment_id = _experiment_of(data)
    experiment = state.experiments.get(experiment_id)
    if experiment is None:
        # It ended and is forgotten. What it held back may go on now, in whichever pool that was; ends are rare.
        return _planned(state, sorted(state.pools), policy)
    pools = {experiment.pool, *_pools_of_slots(state, data)}
    drafts = _released(state, data)
    for draft in drafts:
        state = apply(state, draft)
    corrections = _corrections(state, state.experiments.get(experiment_id))
    for draft in corrections:
        state = apply(state, draft)
    return [*drafts, *corrections, *_planned(state, sorted(pools), policy)]


def _planned(state: State, pools: list[str], policy: Policy) -> list[EventData]:
    """Pools share no slots and no experiments, so each is planned by itself."""
    return [draft for name in pools if name in state.pools for draft in policy(state, state.pools[name])]


def _pools_of_slots(state: State, data: EventData) -> list[str]:
    """Where the slots of an allocation that ends will be free: its agents may have moved to another pool meanwhile."""
    allocation = state.allocations.get(data.allocation_id) if isinstance(data, WorkersExited) else None
    return [state.agents[agent_id].pool for agent_id, _ in allocation.slots] if allocation else []


def _experiment_of(data: EventData) -> int:
    if isinstance(data, Request | Search):
        return data.experiment_id
    assert isinstance(data, WorkersExited | TrialData)
    return experiment_of(data.trial_id)


def _released(state: State, data: EventData) -> list[EventData]:
    if not isinstance(data, WorkersExited) or data.allocation_id not in state.allocations:
        return []
    allocation = state.allocations[data.allocation_id]
    return [
        AllocationReleased(
            pool=allocation.pool,
            allocation_id=allocation.allocation_id,
            trial_id=data.trial_id,
            experiment_id=allocation.experiment_id,
            reason=Reason(
                rule="workers_exited",
                text=f"The workers of allocation {allocation.allocation_id} have exited ({data.outcome}); "
                f"its {allocation.size} slots are free.",
                numbers={"outcome": data.outcome, "exit_code": data.exit_code, "slots": allocation.size},
            ),
        )
    ]


def _corrections(state: State, experiment: Experiment | None) -> list[EventData]:
    """Preemptions that the experiment itself asked for: it is paused, or uses more slots than its limit allows."""
    if experiment is None or not (experiment.paused or _over_limit(experiment, experiment.slots_used)):
        return []
    running = [state.allocations[item] for item in experiment.allocations if not state.allocations[item].leaving]
    if experiment.paused:
        reason = Reason(
            rule="experiment_paused",
            text=f"Experiment {experiment.experiment_id} is paused; its trials save a checkpoint and give their slots back.",
            numbers={"allocations": len(running)},
        )
        return [_preempted(allocation, reason) for allocation in running]
    drafts: list[EventData] = []
    used = sum(allocation.size for allocation in running)
    for allocation in sorted(running, key=lambda item: -item.grant):
        if not _over_limit(experiment, used):
            break
        reason = Reason(
            rule="slot_limit",
            text=f"Experiment {experiment.experiment_id} uses {used} slots but may use {experiment.max_slots}; "
            f"its latest allocation gives {allocation.size} back.",
            numbers={"slots_used": used, "slots_max": experiment.max_slots, "slots_freed": allocation.size},
        )
        drafts.append(_preempted(allocation, reason))
        used -= allocation.size
    return drafts


def _over_limit(experiment: Experiment, slots: int) -> bool:
    return experiment.max_slots is not None and slots > experiment.max_slots


def _preempted(allocation: Allocation, reason: Reason) -> AllocationPreempted:
    return AllocationPreempted(
        pool=allocation.pool,
        allocation_id=allocation.allocation_id,
        trial_id=trial_id(allocation.experiment_id, allocation.trial_number),
        experiment_id=allocation.experiment_id,
        reason=reason,
    )
