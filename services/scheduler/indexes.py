"""Changes of the state that keep its indexes true, so that deciding costs what changed and not what exists."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from immutables import Map

from tenuto.services.scheduler.state import (
    Agent,
    Allocation,
    Experiment,
    Leaving,
    Pool,
    State,
    Trial,
    free_slots,
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
    pool = _pool(state, experiment.pool)
    if old and old.queued:
        pool = replace(pool, queue=without_item(pool.queue, (old.priority, old.experiment_id)))
    if experiment.queued:
        pool = replace(pool, queue=with_item(pool.queue, (experiment.priority, experiment.experiment_id)))
    if old and old.priority != experiment.priority:
        running = [state.allocations[item] for item in experiment.allocations if not state.allocations[item].leaving]
        for allocation in running:
            victims = without_item(pool.victims, _victim(old, allocation))
            pool = replace(pool, victims=with_item(victims, _victim(experiment, allocation)))
    state = _put_pool(state, pool)
    if experiment.ended and not experiment.allocations:
        return replace(state, experiments=state.experiments.delete(experiment.experiment_id)) if old else state
    return replace(state, experiments=state.experiments.set(experiment.experiment_id, experiment))


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
    return (-experiment.priority, allocation.size, -allocation.grant, allocation.allocation_id)


def add_allocation(state: State, allocation: Allocation) -> State:
    """Give the trial its slots."""
    state = replace(state, allocations=state.allocations.set(allocation.allocation_id, allocation), grants=allocation.grant)
    state = _use(state, allocation, with_item)
    experiment = state.experiments[allocation.experiment_id]
    pool = _pool(state, allocation.pool)
    state = _put_pool(state, replace(pool, victims=with_item(pool.victims, _victim(experiment, allocation))))
    experiment = replace(
        experiment,
        allocations=with_item(experiment.allocations, allocation.allocation_id),
        slots_used=experiment.slots_used + allocation.size,
    )
    trial = experiment.trials[allocation.trial_number]
    return put_trial(state, experiment, replace(trial, grants=trial.grants + 1, allocation_id=allocation.allocation_id))


def remove_allocation(state: State, allocation: Allocation) -> State:
    """Give the slots back to their agents."""
    state = mark_leaving(state, allocation, "exited")
    pool = _pool(state, allocation.pool)
    coming = pool.coming - slots_coming_back(state, pool, allocation)
    state = _put_pool(state, replace(pool, leaving=without_item(pool.leaving, allocation.allocation_id), coming=coming))
    state = replace(state, allocations=state.allocations.delete(allocation.allocation_id))
    state = _use(state, allocation, without_item)
    experiment = state.experiments[allocation.experiment_id]
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
    victim = _victim(state.experiments[allocation.experiment_id], allocation)
    slots = slots_coming_back(state, pool, allocation)
    if leaving:
        victims, marked = without_item(pool.victims, victim), with_item(pool.leaving, allocation.allocation_id)
        return _put_pool(state, replace(pool, victims=victims, leaving=marked, coming=pool.coming + slots))
    victims, marked = with_item(pool.victims, victim), without_item(pool.leaving, allocation.allocation_id)
    return _put_pool(state, replace(pool, victims=victims, leaving=marked, coming=pool.coming - slots))


def rebuild(experiments: list[Experiment], agents: list[Agent], allocations: list[Allocation], grants: int) -> State:
    """The state with all indexes made anew from its primary facts: what a snapshot keeps, and what `check` compares with."""
    used: dict[str, list[tuple[int, str]]] = {agent.agent_id: [] for agent in agents}
    live: dict[int, list[Allocation]] = {experiment.experiment_id: [] for experiment in experiments}
    for allocation in allocations:
        live[allocation.experiment_id].append(allocation)
        for agent_id, slot_ids in allocation.slots:
            used[agent_id].extend((slot, allocation.allocation_id) for slot in slot_ids)
    state = State(
        agents=Map({agent.agent_id: replace(agent, used=tuple(sorted(used[agent.agent_id]))) for agent in agents}),
        allocations=Map({allocation.allocation_id: allocation for allocation in allocations}),
        grants=grants,
    )
    joined: dict[str, list[str]] = {}
    for agent in agents:
        if not agent.lost:
            joined.setdefault(agent.pool, []).append(agent.agent_id)
    for name in sorted(joined):
        state = recount_pool(state, name, tuple(sorted(joined[name])))
    for experiment in experiments:
        own = live[experiment.experiment_id]
        holder = {allocation.trial_number: allocation.allocation_id for allocation in own}
        trials = {
            number: replace(experiment.trials[number], allocation_id=holder.get(number, ""))
            for number in sorted(experiment.trials)
        }
        state = put_experiment(
            state,
            replace(
                experiment,
                trials=Map(trials),
                waiting=tuple(number for number, trial in trials.items() if trial.waits),
                allocations=tuple(sorted(allocation.allocation_id for allocation in own)),
                slots_used=sum(allocation.size for allocation in own),
            ),
        )
    for name in sorted({allocation.pool for allocation in allocations}):
        inside = [allocation for allocation in allocations if allocation.pool == name]
        victims = [_victim(state.experiments[item.experiment_id], item) for item in inside if not item.leaving]
        leaving = tuple(sorted(item.allocation_id for item in inside if item.leaving))
        state = _put_pool(state, replace(_pool(state, name), victims=tuple(sorted(victims)), leaving=leaving))
        state = _recount_coming(state, name)
    return state
