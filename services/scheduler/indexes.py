"""Changes of the state that keep its indexes true, so that deciding costs what changed and not what exists."""

from __future__ import annotations

from bisect import bisect_left
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
    usable_slots,
)


class Sortable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


Item = TypeVar("Item", bound=Sortable)


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


def _change_pool(state: State, name: str, **changes: Any) -> State:
    old = state.pools.get(name)
    pool = replace(old or Pool(name), **changes)
    if pool == old:
        return state
    if pool.empty:
        return replace(state, pools=state.pools.delete(name)) if old else state
    return replace(state, pools=state.pools.set(name, pool))


def put_experiment(state: State, experiment: Experiment) -> State:
    old = state.experiments.get(experiment.experiment_id)
    if experiment.ended and not experiment.allocations:
        return drop_experiment(state, experiment)
    state = replace(state, experiments=state.experiments.set(experiment.experiment_id, experiment))
    pool = state.pools.get(experiment.pool) or Pool(experiment.pool)
    queue = pool.queue
    if old and old.queued and (not experiment.queued or old.priority != experiment.priority):
        queue = without_item(queue, (old.priority, old.experiment_id))
    queue = _has(queue, (experiment.priority, experiment.experiment_id), experiment.queued)
    running = _has(pool.running, experiment.experiment_id, bool(experiment.allocations))
    if queue == pool.queue and running == pool.running:
        return state
    return _change_pool(state, experiment.pool, queue=queue, running=running)


def drop_experiment(state: State, experiment: Experiment) -> State:
    old = state.experiments.get(experiment.experiment_id)
    if old is None:
        return state
    pool = state.pools.get(old.pool) or Pool(old.pool)
    state = _change_pool(
        state,
        old.pool,
        queue=without_item(pool.queue, (old.priority, old.experiment_id)),
        running=without_item(pool.running, old.experiment_id),
    )
    return replace(state, experiments=state.experiments.delete(old.experiment_id))


def put_trial(state: State, experiment: Experiment, trial: Trial) -> State:
    """A stopped trial without a live allocation is forgotten."""
    if trial.phase == "stopped" and not trial.allocation_id:
        trials = experiment.trials.delete(trial.number) if trial.number in experiment.trials else experiment.trials
    else:
        trials = experiment.trials.set(trial.number, trial)
    return put_experiment(state, replace(experiment, trials=trials, waiting=_has(experiment.waiting, trial.number, trial.waits)))


def put_agent(state: State, agent: Agent) -> State:
    """Change the use of an agent's slots. What it offers has not changed, else use `reindex_pool` too."""
    if agent.lost and not agent.used:
        return replace(state, agents=state.agents.delete(agent.agent_id)) if agent.agent_id in state.agents else state
    state = replace(state, agents=state.agents.set(agent.agent_id, agent))
    pool = state.pools.get(agent.pool)
    if pool is None:
        return state
    idle = _has(pool.idle, agent.agent_id, bool(free_slots(pool, agent)))
    return state if idle == pool.idle else _change_pool(state, agent.pool, idle=idle)


def reindex_pool(state: State, name: str, agents: tuple[str, ...]) -> State:
    """Recount what the pool offers, after an agent joined, left or changed. `agents` are the joined ones, sorted."""
    members = [state.agents[agent_id] for agent_id in agents]
    kind = "cuda" if any(agent.kind == "cuda" for agent in members) else "cpu"
    view = Pool(name, kind=kind)
    return _change_pool(
        state,
        name,
        kind=kind,
        agents=agents,
        capacity=sum(len(usable_slots(view, agent)) for agent in members),
        idle=tuple(agent.agent_id for agent in members if free_slots(view, agent)),
    )


def add_allocation(state: State, allocation: Allocation) -> State:
    """Give the trial its slots."""
    state = replace(state, allocations=state.allocations.set(allocation.allocation_id, allocation), grants=allocation.grant)
    for agent_id, slot_ids in allocation.slots:
        agent = state.agents[agent_id]
        used = agent.used
        for slot in slot_ids:
            used = with_item(used, (slot, allocation.allocation_id))
        state = put_agent(state, replace(agent, used=used))
    experiment = state.experiments[allocation.experiment_id]
    experiment = replace(
        experiment,
        allocations=with_item(experiment.allocations, allocation.allocation_id),
        slots_used=experiment.slots_used + allocation.size,
    )
    trial = experiment.trials[allocation.trial_number]
    return put_trial(state, experiment, replace(trial, grants=trial.grants + 1, allocation_id=allocation.allocation_id))


def remove_allocation(state: State, allocation: Allocation) -> State:
    """Give the slots back to their agents."""
    state = mark_leaving(state, allocation, "")
    state = replace(state, allocations=state.allocations.delete(allocation.allocation_id))
    for agent_id, slot_ids in allocation.slots:
        agent = state.agents[agent_id]
        used = agent.used
        for slot in slot_ids:
            used = without_item(used, (slot, allocation.allocation_id))
        state = put_agent(state, replace(agent, used=used))
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
    pool = state.pools.get(allocation.pool) or Pool(allocation.pool)
    return _change_pool(state, allocation.pool, leaving=_has(pool.leaving, allocation.allocation_id, bool(leaving)))


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
        state = reindex_pool(state, name, tuple(sorted(joined[name])))
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
    for allocation in allocations:
        if allocation.leaving:
            state = mark_leaving(state, allocation, allocation.leaving)
    return state
