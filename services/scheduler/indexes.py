"""Changes of the state that keep its indexes true, so that deciding costs what changed and not what exists."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from immutables import Map

from tenuto.services.scheduler.policies.usage import settle
from tenuto.services.scheduler.state import (
    Agent,
    Allocation,
    Closed,
    Experiment,
    Leaving,
    Pool,
    PoolPolicy,
    Share,
    State,
    Trial,
    Usage,
    free_slots,
    policy_of,
    slots_coming_back,
    usable_slots,
)


class Sortable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


Item = TypeVar("Item", bound=Sortable)
Use = tuple[int, str]


def with_item(items: tuple[Item, ...], item: Item) -> tuple[Item, ...]:
    """The sorted tuple with the item in its place; unchanged if it is there already."""
    at = bisect_left(items, item)
    if at < len(items) and items[at] == item:
        return items
    return (*items[:at], item, *items[at:])


def without_item(items: tuple[Item, ...], item: Item) -> tuple[Item, ...]:
    at = bisect_left(items, item)
    if at == len(items) or items[at] != item:
        return items
    return items[:at] + items[at + 1 :]


def _has(items: tuple[Item, ...], item: Item, wanted: bool) -> tuple[Item, ...]:
    return with_item(items, item) if wanted else without_item(items, item)


def _pool(state: State, name: str) -> Pool:
    return state.pools.get(name) or Pool(name)


def _put_pool(state: State, pool: Pool) -> State:
    if not pool.empty:
        return replace(state, pools=state.pools.set(pool.name, pool))
    return replace(state, pools=state.pools.delete(pool.name)) if pool.name in state.pools else state


# Experiments and trials


def put_experiment(state: State, experiment: Experiment) -> State:
    """One that ended and has no live allocation is forgotten."""
    old = state.experiments.get(experiment.experiment_id)
    was = _queue_place(old) if old and old.queued else None
    now = _queue_place(experiment) if experiment.queued else None
    if was != now:
        state = _queue(_queue(state, old, without_item), experiment if now else None, with_item)
    if old and old.priority != experiment.priority:
        for allocation in [state.allocations[item] for item in experiment.allocations]:
            if not allocation.leaving and experiment.preemptible:
                pool = _pool(state, allocation.pool)
                victims = with_item(without_item(pool.victims, _victim(old, allocation)), _victim(experiment, allocation))
                state = _put_pool(state, replace(pool, victims=victims))
    if experiment.ended and not experiment.allocations:
        return replace(state, experiments=state.experiments.delete(experiment.experiment_id)) if old else state
    return replace(state, experiments=state.experiments.set(experiment.experiment_id, experiment))


def _queue_place(experiment: Experiment) -> tuple[str, tuple[int, float, int]]:
    return (experiment.pool, experiment.queue_key)


def _queue(state: State, experiment: Experiment | None, change: Callable[[Any, Any], Any]) -> State:
    """Put the experiment into the queue of its pool, or take it out; and tell the pools that may lend it slots."""
    if experiment is None:
        return state
    pool = _pool(state, experiment.pool)
    if change is with_item or experiment.queue_key in pool.queue[bisect_left(pool.queue, experiment.queue_key) :][:1]:
        state = _put_pool(state, replace(pool, queue=change(pool.queue, experiment.queue_key)))
    for name in experiment.fallback_pools:
        lender = _pool(state, name)
        entry = (experiment.pool, experiment.experiment_id)
        state = _put_pool(state, replace(lender, lends_to=change(lender.lends_to, entry)))
    return state


def put_trial(state: State, experiment: Experiment, trial: Trial) -> State:
    """A stopped trial without a live allocation is forgotten."""
    if trial.phase == "stopped" and not trial.allocation_id:
        trials = experiment.trials.delete(trial.number) if trial.number in experiment.trials else experiment.trials
    else:
        trials = experiment.trials.set(trial.number, trial)
    return put_experiment(state, replace(experiment, trials=trials, waiting=_has(experiment.waiting, trial.number, trial.waits)))


# Agents


def put_agent(state: State, agent: Agent) -> State:
    """Change what an agent offers, or which pool it is in. Costs the size of the pool only when its first GPU comes or its last
    one goes. A lost agent without live allocations is forgotten."""
    old = state.agents.get(agent.agent_id)
    was_member, is_member = old is not None and not old.lost, not agent.lost
    concerned = sorted({member.pool for member in (old, agent) if member is not None})
    kinds = {name: _pool(state, name).kind for name in concerned}
    if old and was_member:
        pool = _offer(_pool(state, old.pool), old, -1)
        gpu_agents = pool.gpu_agents - (old.kind == "cuda")
        state = _put_pool(state, replace(pool, agents=without_item(pool.agents, old.agent_id), gpu_agents=gpu_agents))
    pool = _pool(state, agent.pool)
    if is_member:
        gpu_agents = pool.gpu_agents + (agent.kind == "cuda")
        pool = replace(pool, agents=with_item(pool.agents, agent.agent_id), gpu_agents=gpu_agents)
    agent = replace(agent, free=free_slots(pool, agent))
    state = _set_agent(_put_pool(state, _offer(pool, agent, 1)), agent)
    for name in concerned:
        if _pool(state, name).kind != kinds[name]:
            state = recount_pool(state, name, _pool(state, name).agents)
        state = _recount_coming(state, name)
    return state


def _offer(pool: Pool, agent: Agent, sign: int) -> Pool:
    """Count the agent's slots in (1) or out (-1)."""
    change = with_item if sign > 0 else without_item
    return replace(
        pool,
        capacity=pool.capacity + sign * len(usable_slots(pool, agent)),
        free=pool.free + sign * len(agent.free),
        idle=change(pool.idle, (len(agent.free), agent.agent_id)) if agent.free else pool.idle,
    )


def _set_agent(state: State, agent: Agent) -> State:
    if agent.lost and not agent.used:
        return replace(state, agents=state.agents.delete(agent.agent_id)) if agent.agent_id in state.agents else state
    return replace(state, agents=state.agents.set(agent.agent_id, agent))


def recount_pool(state: State, name: str, members: tuple[str, ...]) -> State:
    """Count all that the pool's agents offer anew. `members` are the joined ones, sorted."""
    agents = [state.agents[agent_id] for agent_id in members]
    gpu_agents = sum(agent.kind == "cuda" for agent in agents)
    pool = replace(_pool(state, name), agents=members, gpu_agents=gpu_agents, capacity=0, free=0, idle=())
    changed = [replace(agent, free=free_slots(pool, agent)) for agent in agents]
    pool = replace(
        pool,
        capacity=sum(len(usable_slots(pool, agent)) for agent in changed),
        free=sum(len(agent.free) for agent in changed),
        idle=tuple(sorted((len(agent.free), agent.agent_id) for agent in changed if agent.free)),
    )
    for agent in changed:
        state = _set_agent(state, agent)
    return _put_pool(state, pool)


def _recount_coming(state: State, name: str) -> State:
    pool = _pool(state, name)
    coming = sum(slots_coming_back(state, pool, state.allocations[item]) for item in pool.leaving)
    return state if coming == pool.coming else _put_pool(state, replace(pool, coming=coming))


def _use(state: State, allocation: Allocation, change: Callable[[tuple[Use, ...], Use], tuple[Use, ...]]) -> State:
    """Take the allocation's slots from their agents, or give them back."""
    for agent_id, slot_ids in allocation.slots:
        old = state.agents[agent_id]
        used = old.used
        for slot in slot_ids:
            used = change(used, (slot, allocation.allocation_id))
        pool = _pool(state, old.pool)
        agent = replace(old, used=used)
        agent = replace(agent, free=free_slots(pool, agent))
        idle = without_item(pool.idle, (len(old.free), agent_id)) if old.free else pool.idle
        idle = with_item(idle, (len(agent.free), agent_id)) if agent.free else idle
        pool = replace(pool, idle=idle, free=pool.free - len(old.free) + len(agent.free))
        state = _set_agent(_put_pool(state, pool), agent)
    return state


# Allocations


def _victim(experiment: Experiment, allocation: Allocation) -> tuple[int, int, int, str]:
    return (-experiment.priority, allocation.size, -allocation.since_us, allocation.allocation_id)


def _count(pool: Pool, experiment: Experiment, allocation: Allocation, sign: int) -> Pool:
    """Count an allocation that is not leaving in (1) or out (-1)."""
    change: Callable[[Any, Any], Any] = with_item if sign > 0 else without_item
    held = pool.held.get(experiment.experiment_id, 0) + sign * allocation.size
    changes: dict[str, Any] = {
        "held": pool.held.set(experiment.experiment_id, held) if held else pool.held.delete(experiment.experiment_id)
    }
    if experiment.preemptible:
        changes["victims"] = change(pool.victims, _victim(experiment, allocation))
    if experiment.expected_us is not None:
        end = (allocation.granted_us + experiment.expected_us, allocation.allocation_id)
        changes["ends"] = change(pool.ends, end)
    if allocation.backfill_until_us is not None:
        changes["backfilled"] = change(pool.backfilled, (allocation.backfill_until_us, allocation.allocation_id))
    return replace(pool, **changes)


def _own(state: State, experiment: Experiment, slots: int) -> State:
    """Count slots of its live allocations to its owners."""
    owned = state.owner_slots
    for owner in experiment.owners:
        count = owned.get(owner, 0) + slots
        owned = owned.set(owner, count) if count else owned.delete(owner)
    return replace(state, owner_slots=owned)


def add_allocation(state: State, allocation: Allocation) -> State:
    """Give the trial its slots."""
    experiment = state.experiments[allocation.experiment_id]
    state = replace(state, allocations=state.allocations.set(allocation.allocation_id, allocation), grants=allocation.grant)
    state = _own(_use(state, allocation, with_item), experiment, allocation.size)
    state = _put_pool(state, _count(_pool(state, allocation.pool), experiment, allocation, 1))
    state = use_slots(state, experiment, allocation.pool, allocation.size, allocation.granted_us)
    experiment = replace(
        experiment,
        allocations=with_item(experiment.allocations, allocation.allocation_id),
        slots_used=experiment.slots_used + allocation.size,
    )
    trial = experiment.trials[allocation.trial_number]
    return put_trial(state, experiment, replace(trial, grants=trial.grants + 1, allocation_id=allocation.allocation_id))


def remove_allocation(state: State, allocation: Allocation, now_us: int) -> State:
    """Give the slots back to their agents."""
    state = mark_leaving(state, allocation, "exited")
    pool = _pool(state, allocation.pool)
    coming = pool.coming - slots_coming_back(state, pool, allocation)
    state = _put_pool(state, replace(pool, leaving=without_item(pool.leaving, allocation.allocation_id), coming=coming))
    state = replace(state, allocations=state.allocations.delete(allocation.allocation_id))
    experiment = state.experiments[allocation.experiment_id]
    state = _own(_use(state, allocation, without_item), experiment, -allocation.size)
    state = use_slots(state, experiment, allocation.pool, -allocation.size, now_us)
    experiment = replace(
        experiment,
        allocations=without_item(experiment.allocations, allocation.allocation_id),
        slots_used=experiment.slots_used - allocation.size,
    )
    trial = experiment.trials[allocation.trial_number]
    return put_trial(state, experiment, replace(trial, allocation_id=""))


def mark_leaving(state: State, allocation: Allocation, leaving: Leaving, outcome: str = "") -> State:
    changed = replace(allocation, leaving=leaving, outcome=outcome or allocation.outcome)
    state = replace(state, allocations=state.allocations.set(allocation.allocation_id, changed))
    if bool(allocation.leaving) == bool(leaving):
        return state
    pool = _pool(state, allocation.pool)
    experiment = state.experiments[allocation.experiment_id]
    slots = slots_coming_back(state, pool, allocation)
    if leaving:
        pool = _count(pool, experiment, allocation, -1)
        marked = with_item(pool.leaving, allocation.allocation_id)
        return _put_pool(state, replace(pool, leaving=marked, coming=pool.coming + slots))
    pool = _count(pool, experiment, allocation, 1)
    marked = without_item(pool.leaving, allocation.allocation_id)
    return _put_pool(state, replace(pool, leaving=marked, coming=pool.coming - slots))


def saved_checkpoint(state: State, allocation: Allocation, now_us: int) -> State:
    """From now on it has less to lose."""
    changed = replace(allocation, since_us=max(now_us, allocation.since_us))
    state = replace(state, allocations=state.allocations.set(allocation.allocation_id, changed))
    experiment = state.experiments[allocation.experiment_id]
    if allocation.leaving or not experiment.preemptible:
        return state
    pool = _pool(state, allocation.pool)
    victims = without_item(pool.victims, _victim(experiment, allocation))
    return _put_pool(state, replace(pool, victims=with_item(victims, _victim(experiment, changed))))


# Use over time


def usage_keys(pool: str, experiment: Experiment) -> tuple[str, str]:
    return (f"{pool}/{experiment.workspace}", f"{pool}/{experiment.workspace}/{experiment.user}")


def use_slots(state: State, experiment: Experiment, pool: str, slots: int, now_us: int) -> State:
    half_life_us = policy_of(state, pool).half_life_us
    if not half_life_us:
        return state
    usage = state.usage
    for key in usage_keys(pool, experiment):
        settled = settle(usage.get(key) or Usage(at_us=now_us), now_us, half_life_us)
        usage = usage.set(key, replace(settled, slots=settled.slots + slots))
    return replace(state, usage=usage)


def set_policy(state: State, name: str, policy: PoolPolicy, now_us: int) -> State:
    """Past use is forgotten where it does not count any more, and counted from now on where it begins to."""
    old = policy_of(state, name)
    state = replace(state, policies=state.policies.set(name, policy))
    if old.half_life_us == policy.half_life_us:
        return state
    kept = {key: state.usage[key] for key in sorted(state.usage) if not key.startswith(f"{name}/")}
    state = replace(state, usage=Map(kept))
    for allocation_id in sorted(state.allocations):
        allocation = state.allocations[allocation_id]
        if allocation.pool == name:
            state = use_slots(state, state.experiments[allocation.experiment_id], name, allocation.size, now_us)
    return state


@dataclass(frozen=True)
class Facts:
    """What a snapshot keeps: the rest of the state follows from it."""

    experiments: list[Experiment]
    agents: list[Agent]
    allocations: list[Allocation]
    grants: int
    policies: Map[str, PoolPolicy]
    shares: Map[str, Share]
    closed: Map[str, Closed]
    usage: Map[str, Usage]


def rebuild(facts: Facts) -> State:
    """The state with all indexes made anew from its primary facts: what a snapshot keeps, and what `check` compares with."""
    used: dict[str, list[tuple[int, str]]] = {agent.agent_id: [] for agent in facts.agents}
    live: dict[int, list[Allocation]] = {experiment.experiment_id: [] for experiment in facts.experiments}
    for allocation in facts.allocations:
        live[allocation.experiment_id].append(allocation)
        for agent_id, slot_ids in allocation.slots:
            used[agent_id].extend((slot, allocation.allocation_id) for slot in slot_ids)
    agents = [
        replace(agent, used=tuple(sorted(used[agent.agent_id])), closed=facts.closed.get(agent.agent_id))
        for agent in facts.agents
    ]
    state = State(
        agents=Map({agent.agent_id: agent for agent in agents}),
        allocations=Map({allocation.allocation_id: allocation for allocation in facts.allocations}),
        grants=facts.grants,
        policies=facts.policies,
        shares=facts.shares,
        closed=facts.closed,
        usage=facts.usage,
    )
    joined: dict[str, list[str]] = {}
    for agent in agents:
        if not agent.lost:
            joined.setdefault(agent.pool, []).append(agent.agent_id)
    for name in sorted(joined):
        state = recount_pool(state, name, tuple(sorted(joined[name])))
    for experiment in facts.experiments:
        state = _put_back(state, experiment, live[experiment.experiment_id])
    return _with_counts(state, facts.allocations)


def _put_back(state: State, experiment: Experiment, own: list[Allocation]) -> State:
    holder = {allocation.trial_number: allocation.allocation_id for allocation in own}
    trials = {
        number: replace(experiment.trials[number], allocation_id=holder.get(number, "")) for number in sorted(experiment.trials)
    }
    slots = sum(allocation.size for allocation in own)
    state = put_experiment(
        state,
        replace(
            experiment,
            trials=Map(trials),
            waiting=tuple(number for number, trial in trials.items() if trial.waits),
            allocations=tuple(sorted(allocation.allocation_id for allocation in own)),
            slots_used=slots,
        ),
    )
    return _own(state, experiment, slots) if slots else state


def _with_counts(state: State, allocations: list[Allocation]) -> State:
    for allocation in allocations:
        pool = _pool(state, allocation.pool)
        if allocation.leaving:
            pool = replace(pool, leaving=with_item(pool.leaving, allocation.allocation_id))
        else:
            pool = _count(pool, state.experiments[allocation.experiment_id], allocation, 1)
        state = _put_pool(state, pool)
    usage = state.usage
    for name in sorted({allocation.pool for allocation in allocations}):
        state = _recount_coming(state, name)
        if not policy_of(state, name).half_life_us:
            continue
        for allocation in allocations:
            for key in usage_keys(name, state.experiments[allocation.experiment_id]) if allocation.pool == name else ():
                usage = usage.set(key, replace(usage[key], slots=usage[key].slots + allocation.size))
    return replace(state, usage=usage)
