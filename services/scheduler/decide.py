"""Decisions on an event: allocations are released, or preempted on account of their experiment, and the pool is planned anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenuto.kernel.core import Command, Refused
from tenuto.kernel.decision_tables import decisions, nothing
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentEvent as AgentData
from tenuto.schemas.events.agent import AgentJoined
from tenuto.schemas.events.node import NodeEvent as NodeData
from tenuto.schemas.events.node import NodeReleased
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, AllocationReleased, AllocationResized
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ClusterRequest, ExperimentPoolChanged, RequestEvent, SlotsClosed
from tenuto.schemas.events.run import RestartPauseEnded, WorkersExited
from tenuto.schemas.events.search import Search, TrialRequested
from tenuto.schemas.events.trial import CheckpointSaved
from tenuto.schemas.events.trial import TrialEvent as TrialData
from tenuto.schemas.ids import allocation_id, experiment_of
from tenuto.schemas.sentences.grants import GoesOnResized
from tenuto.schemas.sentences.released_slots import (
    AgentLeaves,
    ExperimentPaused,
    OverLimit,
    PoolChanged,
    ShrinksToLimit,
    SlotsClosedBelow,
    WorkersLeft,
)
from tenuto.services.scheduler.evolve import FOLDS, apply
from tenuto.services.scheduler.policies import auxiliary, capacity, fair_share, fifo, priority
from tenuto.services.scheduler.policies.decisions import preempted, resized
from tenuto.services.scheduler.policies.shrinking import droppable
from tenuto.services.scheduler.policies.turns import any_due
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State, policy_of
from tenuto.services.scheduler.state.slotsets import smaller
from tenuto.services.scheduler.state.usable import free_slots

Policy = Callable[[State, Pool, int], list[EventData]]
POLICIES: dict[str, Policy] = {"priority": priority.plan, "fair_share": fair_share.plan, "fifo": fifo.plan}


def decide(state: State, cause: Event | Command, policy: Policy | None = None) -> Sequence[EventData]:
    """Called with the cause folded in. The scheduler takes no commands. `policy`: instead of the pools' own, for tests."""
    drafts = _decided(state, cause, policy)
    if not state.provisioned or not isinstance(cause, Event):
        return drafts
    for draft in drafts:
        state = apply(state, draft, cause.time_us)
    return [*drafts, *capacity.plan(state)]


def _decided(state: State, cause: Event | Command, policy: Policy | None) -> Sequence[EventData]:
    if not isinstance(cause, Event):
        raise Refused("The scheduler takes no commands; it follows the log.", "invalid")
    return EVENTS.get(type(cause.data), nothing)(state, cause.data, cause.time_us, policy)


def saved(state: State, data: CheckpointSaved, time_us: int, policy: Policy | None) -> Sequence[EventData]:
    """Plans the pool anew if the checkpoint matters to it: it changes which allocation is cheapest to preempt, and an elastic
    trial has least to lose now, so it may grow. Checkpoints also come while nothing else happens for hours, so they start
    turns."""
    allocation = state.allocations.get(data.allocation_id)
    if allocation is None:
        return ()
    elastic = state.experiments[allocation.experiment_id].elastic
    pool = state.pools.get(allocation.pool)
    due = pool is not None and any_due(pool, time_us) and policy_of(state, pool.name).name == "fair_share"
    return _planned(state, [allocation.pool], policy, time_us) if elastic or due else ()


def changed(
    state: State, data: AgentData | ClusterRequest | NodeData, time_us: int, policy: Policy | None
) -> Sequence[EventData]:
    """An agent may have changed its pool, a share holds in all pools. Such events are rare, so all pools are planned."""
    evicted = _evicted(state, data)
    for draft in evicted:
        state = apply(state, draft, time_us)
    return [*evicted, *_planned(state, sorted(state.pools), policy, time_us)]


def moved_on(
    state: State,
    data: RequestEvent | Search | WorkersExited | RestartPauseEnded | TrialData,
    time_us: int,
    policy: Policy | None,
) -> Sequence[EventData]:
    """Something has happened to an experiment or a trial."""
    experiment_id = _experiment_of(data)
    experiment = state.experiments.get(experiment_id)
    if experiment is None:
        # It ended and is forgotten. What it held back may go on now, in whichever pool that was; ends are rare.
        return _planned(state, sorted(state.pools), policy, time_us)
    if isinstance(data, TrialRequested) and _waits_already(state, experiment):
        return ()
    pools = {experiment.pool, *_pools_of_slots(state, data)}
    if state.shares or isinstance(data, ExperimentPoolChanged):
        pools.update(sorted(state.pools))  # A quota holds in all pools.
    drafts = _released(state, data, time_us)
    # Each step must see what the one before it gave back: releases, then corrections, then plans.
    for draft in drafts:
        state = apply(state, draft, time_us)
    corrections = _corrections(state, state.experiments.get(experiment_id))
    for draft in corrections:
        state = apply(state, draft, time_us)
    return [*drafts, *corrections, *_planned(state, sorted(pools), policy, time_us)]


def _waits_already(state: State, experiment: Experiment) -> bool:
    """An earlier trial of the experiment waits, and for no slots that are being freed: then a later one can only wait, too."""
    pool = state.pools.get(experiment.pool)
    if len(experiment.waiting) < 2 or experiment.trials[experiment.waiting[0]].excluded:
        return False
    return experiment.queued and pool is not None and not pool.leaving and not experiment.paused


def _planned(state: State, names: list[str], policy: Policy | None, now_us: int) -> list[EventData]:
    """Grants of the named pools, planned one after the other: a pool comes before those that it may lend slots to, so that none
    is lent slots that the pool's own trials would take back at once."""
    drafts: list[EventData] = []
    borrowers = sorted({entry[0] for name in names if name in state.pools for entry in state.pools[name].lends_to})
    for name in _lenders_first(state, sorted({*names, *borrowers})) if borrowers else names:
        if name not in state.pools:
            continue
        plan = policy or POLICIES[policy_of(state, name).name]
        planned = [*auxiliary.plan(state, state.pools[name]), *plan(state, state.pools[name], now_us)]
        drafts.extend(planned)
        if borrowers or state.shares or len(names) > 1:  # Two pools may borrow from the same third one.
            for draft in planned:
                state = apply(state, draft, now_us)
    return drafts


def _lenders_first(state: State, names: list[str]) -> list[str]:
    """Pools in the order of planning, lenders before borrowers. Where pools lend to each other, one of them comes before a lender
    of its own, and is repeated at the end."""
    lends = {name: {entry[0] for entry in state.pools[name].lends_to} for name in names if name in state.pools}
    ordered: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for lender in names:
                if name in lends.get(lender, ()):
                    visit(lender)
            ordered.append(name)

    for name in names:
        visit(name)
    early = [name for at, name in enumerate(ordered) if any(name in lends.get(lender, ()) for lender in ordered[at + 1 :])]
    return ordered + early


def _evicted(state: State, data: EventData) -> list[EventData]:
    """Preemptions of allocations on slots that a user closed without draining them, or of an agent that leaves."""
    leaves = _agent_that_leaves(data)
    if leaves in state.agents:
        agent = state.agents[leaves]
        concerned = {*(item for _, item in agent.used), *agent.auxiliary}
        return _preempted(state, concerned, AgentLeaves(agent=leaves).reason())
    if not isinstance(data, SlotsClosed) or data.drain or data.agent_id not in state.agents:
        return []
    agent = state.agents[data.agent_id]
    concerned = {item for slot, item in agent.used if data.slot_id is None or slot == data.slot_id}
    if data.slot_id is None:
        concerned.update(agent.auxiliary)
    return _preempted(state, concerned, SlotsClosedBelow(agent=data.agent_id, slot=data.slot_id).reason())


def _agent_that_leaves(data: EventData) -> str:
    """Agent that has to go now, or empty."""
    if isinstance(data, AgentJoined) and data.leaving == "now":
        return data.agent_id
    return data.node_id if isinstance(data, NodeReleased) and not data.drain else ""


def _preempted(state: State, concerned: set[str], reason: Reason) -> list[EventData]:
    leaving = [state.allocations[item] for item in sorted(concerned) if not state.allocations[item].leaving]
    return [preempted(allocation.pool, allocation, reason) for allocation in leaving]


def _pools_of_slots(state: State, data: EventData) -> list[str]:
    """Pools in which slots become free as an allocation ends; its agents may have moved to another pool meanwhile."""
    allocation = state.allocations.get(data.allocation_id) if isinstance(data, WorkersExited) else None
    return [state.agents[agent_id].pool for agent_id, _ in allocation.slots] if allocation else []


def _experiment_of(data: EventData) -> int:
    if isinstance(data, RequestEvent | Search):
        return data.experiment_id
    assert isinstance(data, WorkersExited | RestartPauseEnded | TrialData)
    return experiment_of(data.trial_id)


def _released(state: State, data: EventData, now_us: int) -> list[EventData]:
    if not isinstance(data, WorkersExited) or data.allocation_id not in state.allocations:
        return []
    allocation = state.allocations[data.allocation_id]
    released = _release(allocation, data)
    if not allocation.next:
        return [released]
    return [released, *_goes_on(apply(state, released, now_us), allocation)]


def _release(allocation: Allocation, data: WorkersExited) -> AllocationReleased:
    return AllocationReleased(
        pool=allocation.pool,
        allocation_id=allocation.allocation_id,
        trial_id=data.trial_id,
        experiment_id=allocation.experiment_id,
        reason=WorkersLeft(outcome=data.outcome, exit_code=data.exit_code, slots=allocation.size).reason(),
    )


def _goes_on(state: State, allocation: Allocation) -> list[EventData]:
    """Grant of the slots kept for a resized trial, as far as they still exist; with too few, the trial waits like others."""
    experiment = state.experiments.get(allocation.experiment_id)
    trial = experiment.trials.get(allocation.trial_number) if experiment else None
    pool = state.pools.get(allocation.pool)
    if experiment is None or trial is None or pool is None or not trial.waits or not experiment.queued:
        return []
    if allocation.pool not in (experiment.pool, *experiment.fallback_pools):
        return []
    left = experiment.slots_most if experiment.max_slots is None else experiment.max_slots - experiment.slots_used
    parts: list[AgentSlots] = []
    for agent_id, slot_ids in allocation.next:
        agent = state.agents.get(agent_id)
        # Slots may have been closed, and the agent may be gone, since the resize was decided.
        there = free_slots(pool, agent) if agent else ()
        usable = tuple(slot for slot in slot_ids if slot in there)[: max(0, left)]
        left -= len(usable)
        if usable:
            parts.append(AgentSlots(agent_id=agent_id, slot_ids=usable))
    size = sum(len(part.slot_ids) for part in parts)
    if size < experiment.slots_per_trial:
        return []
    name = allocation.trial_id
    return [
        AllocationGranted(
            pool=allocation.pool,
            allocation_id=allocation_id(name, trial.grants + 1),
            trial_id=name,
            experiment_id=allocation.experiment_id,
            slots=tuple(parts),
            reason=GoesOnResized(slots_from=allocation.size, slots_to=size).reason(),
        )
    ]


def _corrections(state: State, experiment: Experiment | None) -> list[EventData]:
    """Preemptions that the experiment itself asked for: it is paused, or uses more slots than its limit allows."""
    if experiment is None:
        return []
    running = [state.allocations[item] for item in experiment.allocations if not state.allocations[item].leaving]
    elsewhere = [item for item in running if item.pool != experiment.pool and item.pool not in experiment.fallback_pools]
    if elsewhere and not experiment.paused:
        reason = PoolChanged(to_pool=experiment.pool, allocations=len(elsewhere)).reason()
        return [preempted(allocation.pool, allocation, reason) for allocation in elsewhere]
    if not (experiment.paused or _over_limit(experiment, experiment.slots_used)):
        return []
    if experiment.paused:
        reason = ExperimentPaused(allocations=len(running)).reason()
        return [preempted(allocation.pool, allocation, reason) for allocation in running]
    drafts, used = _shrunk_to_limit(state, experiment)
    concerned = {draft.allocation_id for draft in drafts if isinstance(draft, AllocationResized)}
    for allocation in sorted((item for item in running if item.allocation_id not in concerned), key=lambda item: -item.grant):
        if not _over_limit(experiment, used):
            break
        assert experiment.max_slots is not None
        over = OverLimit(slots_used=used, slots_max=experiment.max_slots, slots_freed=allocation.size)
        drafts.append(preempted(allocation.pool, allocation, over.reason()))
        used -= allocation.size
    return drafts


def _shrunk_to_limit(state: State, experiment: Experiment) -> tuple[list[EventData], int]:
    """Resizes of elastic trials that give up the slots above the limit, the largest first; and the slots that all its trials have
    then."""
    staying = [state.allocations[item] for item in experiment.allocations]
    staying = [item for item in staying if item.leaving in ("", "resized")]
    sizes = {item.allocation_id: item.size_soon for item in staying}
    if not experiment.elastic or experiment.max_slots is None:
        return [], sum(sizes.values())
    pools = {item.allocation_id: state.pools[item.pool] for item in staying}
    while sum(sizes.values()) > experiment.max_slots:
        most, item = max(((size, item) for item, size in sizes.items()), default=(0, ""))
        if most <= experiment.slots_per_trial:
            break
        sizes[item] -= 1
    drafts: list[EventData] = []
    for allocation in staying:
        now, size = allocation.next or allocation.slots, sizes[allocation.allocation_id]
        if size == allocation.size_soon:
            continue
        dropped = droppable(state, pools[allocation.allocation_id], now)[: allocation.size_soon - size]
        soon = None if allocation.size_soon == allocation.size else allocation.size_soon
        why = ShrinksToLimit(slots_from=allocation.size, slots_soon=soon, slots_to=size, slots_max=experiment.max_slots)
        if dropped:
            drafts.append(resized(allocation, smaller(now, dropped), why.reason()))
    return drafts, sum(sizes.values())


def _over_limit(experiment: Experiment, slots: int) -> bool:
    return experiment.max_slots is not None and slots > experiment.max_slots


_BASES = decisions(saved, changed, moved_on, parameter="data")
EVENTS = {
    kind: next(_BASES[base] for base in kind.__mro__ if base in _BASES)
    for kind in sorted(FOLDS.kinds, key=lambda kind: kind.TYPE)
    if kind.TYPE in FOLDS.consumes
}
"""Called with the event folded in. An event is decided on by the function of its nearest base."""
