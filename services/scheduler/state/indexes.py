"""Changes of experiments, trials and agents that keep the indexes true, so that deciding costs what changed and not what
exists."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from immutables import Map

from tenuto.schemas.fast_replace import replaced
from tenuto.services.scheduler.state import RETURNING, Agent, Allocation, Experiment, Groups, Pool, State, Trial
from tenuto.services.scheduler.state.giving_way import gives_way
from tenuto.services.scheduler.state.slotsets import SlotSet
from tenuto.services.scheduler.state.usable import free_slots, slots_coming_back, usable_slots


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


def pool_of(state: State, name: str) -> Pool:
    return state.pools.get(name) or Pool(name)


def put_pool(state: State, pool: Pool) -> State:
    if not pool.empty:
        return replaced(state, pools=state.pools.set(pool.name, pool))
    return replaced(state, pools=state.pools.delete(pool.name)) if pool.name in state.pools else state


# Experiments and trials


def put_experiment(state: State, experiment: Experiment) -> State:
    """Stores an experiment; removes it if it has ended and has no live allocation."""
    old = state.experiments.get(experiment.experiment_id)
    was = _queue_place(old) if old and old.queued else None
    now = _queue_place(experiment) if experiment.queued else None
    if was != now:
        state = _queue(_queue(state, old, without_item), experiment if now else None, with_item)
    state = _reindexed(state, "unserved", _unserved(old), _unserved(experiment))
    state = _reindexed(state, "turns", _turn(old), _turn(experiment))
    if old and old.priority != experiment.priority:
        for allocation in [state.allocations[item] for item in experiment.allocations]:
            if not allocation.leaving and gives_way(experiment, allocation) and not experiment.auxiliary:
                pool = pool_of(state, allocation.pool)
                victims = with_item(without_item(pool.victims, victim(old, allocation)), victim(experiment, allocation))
                state = put_pool(state, replaced(pool, victims=victims))
    if experiment.ended and not experiment.allocations:
        state = replaced(state, experiments=state.experiments.delete(experiment.experiment_id)) if old else state
        return _regroup(state, experiment)
    return set_experiment(state, experiment)


def _unserved(experiment: Experiment | None) -> tuple[str, tuple[int, int]] | None:
    if experiment is None or not experiment.queued or experiment.allocations or experiment.auxiliary:
        return None
    return experiment.pool, (experiment.unserved_since_us, experiment.experiment_id)


def _turn(experiment: Experiment | None) -> tuple[str, tuple[int, int]] | None:
    if experiment is None or not experiment.turn_until_us or experiment.ended:
        return None
    return experiment.pool, (experiment.turn_until_us, experiment.experiment_id)


def _reindexed(
    state: State, name: str, old: tuple[str, tuple[int, int]] | None, new: tuple[str, tuple[int, int]] | None
) -> State:
    """The pool's sorted index of this name without the old entry and with the new one."""
    if old == new:
        return state
    for place, change in ((old, without_item), (new, with_item)):
        if place is not None:
            pool = pool_of(state, place[0])
            changed: dict[str, Any] = {name: change(getattr(pool, name), place[1])}
            state = put_pool(state, replaced(pool, **changed))
    return state


def change_experiment(state: State, experiment_id: int, **changes: Any) -> State:
    experiment = state.experiments.get(experiment_id)
    return put_experiment(state, replaced(experiment, **changes)) if experiment else state


def set_experiment(state: State, experiment: Experiment) -> State:
    """Stores an experiment whose place in the queues is unchanged."""
    return _regroup(replaced(state, experiments=state.experiments.set(experiment.experiment_id, experiment)), experiment)


def _regroup(state: State, experiment: Experiment) -> State:
    for name in sorted({*state.pools, experiment.pool}):
        pool = pool_of(state, name)
        groups = grouped(pool, experiment, pool.held.get(experiment.experiment_id, 0))
        if groups is not pool.groups:
            state = put_pool(state, replaced(pool, groups=groups))
    return state


def grouped(pool: Pool, experiment: Experiment, held: int) -> Groups:
    """The pool's groups with the experiment as it stands, and what it holds, in the group of its owner; or out of it. One that
    gives way stays: if what it wants were forgotten until its workers have left, the others' shares would grow meanwhile."""
    if experiment.auxiliary:
        return pool.groups
    key, owner = experiment.experiment_id, (experiment.workspace, experiment.user)
    group = pool.groups.get(owner)
    if held or (experiment.open and experiment.pool == pool.name and (experiment.waiting or experiment.returning)):
        group = (group if group is not None else Map()).set(key, (experiment, held))
        return pool.groups.set(owner, group)
    if group is None or key not in group:
        return pool.groups
    group = group.delete(key)
    return pool.groups.set(owner, group) if group else pool.groups.delete(owner)


def _queue_place(experiment: Experiment) -> tuple[str, tuple[int, float, int]]:
    return (experiment.pool, experiment.queue_key)


def _queue(state: State, experiment: Experiment | None, change: Callable[[Any, Any], Any]) -> State:
    """Put the experiment into the queue of its pool, or take it out; and tell the pools that may lend it slots."""
    if experiment is None:
        return state
    pool = pool_of(state, experiment.pool)
    if experiment.auxiliary:
        state = put_pool(state, replaced(pool, auxiliary_queue=change(pool.auxiliary_queue, experiment.queue_key)))
    elif change is with_item or experiment.queue_key in pool.queue[bisect_left(pool.queue, experiment.queue_key) :][:1]:
        state = put_pool(state, replaced(pool, queue=change(pool.queue, experiment.queue_key)))
    for name in experiment.fallback_pools:
        lender = pool_of(state, name)
        entry = (experiment.pool, experiment.experiment_id)
        state = put_pool(state, replaced(lender, lends_to=change(lender.lends_to, entry)))
    return state


def put_trial(state: State, experiment: Experiment, trial: Trial) -> State:
    """A stopped trial without a live allocation is forgotten."""
    if trial.phase == "stopped" and not trial.allocation_id:
        trials = experiment.trials.delete(trial.number) if trial.number in experiment.trials else experiment.trials
    else:
        trials = experiment.trials.set(trial.number, trial)
    kept_away = experiment.kept_away
    if kept_away or trial.excluded:
        kept_away = _has(kept_away, trial.number, bool(trial.excluded) and trial.number in trials)
    waiting = _has(experiment.waiting, trial.number, trial.waits)
    returning = _has(experiment.returning, trial.number, returns(state, trial))
    return put_experiment(state, replaced(experiment, trials=trials, waiting=waiting, returning=returning, kept_away=kept_away))


def returns(state: State, trial: Trial) -> bool:
    """True if its workers are leaving, and it waits for slots again as soon as they have left."""
    if trial.phase != "wanted" or trial.verdict_of or trial.pause_of or not trial.allocation_id:
        return False
    return state.allocations[trial.allocation_id].leaving in RETURNING


def with_returning(state: State, allocation: Allocation) -> State:
    """Updates the experiment of an allocation that begins to leave, or leaves for another reason than before."""
    experiment = state.experiments[allocation.experiment_id]
    trial = experiment.trials[allocation.trial_number]
    returning = _has(experiment.returning, trial.number, returns(state, trial))
    if returning == experiment.returning:
        return state
    return set_experiment(state, replaced(experiment, returning=returning))


def trial_of(state: State, trial_id: str) -> tuple[Experiment, Trial] | None:
    """The trial by its id (`<experiment>-<number>`), or None if it is over and forgotten."""
    experiment_id, _, number = trial_id.partition("-")
    experiment = state.experiments.get(int(experiment_id))
    trial = experiment.trials.get(int(number)) if experiment else None
    return (experiment, trial) if experiment and trial else None


# Agents


def put_agent(state: State, agent: Agent) -> State:
    """Change what an agent offers, or which pool it is in. Costs the size of the pool only when its first GPU comes or its last
    one goes. A lost agent without live allocations is forgotten."""
    old = state.agents.get(agent.agent_id)
    was_member, is_member = old is not None and not old.lost, not agent.lost
    concerned = sorted({member.pool for member in (old, agent) if member is not None})
    kinds = {name: pool_of(state, name).kind for name in concerned}
    if old and was_member:
        pool = _offer(pool_of(state, old.pool), old, -1)
        gpu_agents = pool.gpu_agents - (old.kind == "cuda")
        state = put_pool(state, replaced(pool, agents=without_item(pool.agents, old.agent_id), gpu_agents=gpu_agents))
    pool = pool_of(state, agent.pool)
    if is_member:
        gpu_agents = pool.gpu_agents + (agent.kind == "cuda")
        pool = replaced(pool, agents=with_item(pool.agents, agent.agent_id), gpu_agents=gpu_agents)
    agent = replaced(agent, free=free_slots(pool, agent))
    state = _set_agent(put_pool(state, _offer(pool, agent, 1)), agent)
    for name in concerned:
        if pool_of(state, name).kind != kinds[name]:
            state = recount_pool(state, name, pool_of(state, name).agents)
        state = recount_coming(state, name)
    return state


def _offer(pool: Pool, agent: Agent, sign: int) -> Pool:
    """Count the agent's slots in (1) or out (-1)."""
    change = with_item if sign > 0 else without_item
    return replaced(
        pool,
        capacity=pool.capacity + sign * len(usable_slots(pool, agent)),
        free=pool.free + sign * len(agent.free),
        idle=change(pool.idle, (len(agent.free), agent.agent_id)) if agent.free else pool.idle,
        auxiliary_room=change(pool.auxiliary_room, _room(agent)) if takes_auxiliary(agent) else pool.auxiliary_room,
    )


def takes_auxiliary(agent: Agent) -> bool:
    """True if the agent takes another trial without slots."""
    open_now = not (agent.lost or (agent.closed is not None and agent.closed.agent))
    return open_now and len(agent.auxiliary) < agent.auxiliary_max


def _room(agent: Agent) -> tuple[int, str]:
    return (len(agent.auxiliary), agent.agent_id)


def _set_agent(state: State, agent: Agent) -> State:
    if agent.lost and not (agent.used or agent.auxiliary):
        return replaced(state, agents=state.agents.delete(agent.agent_id)) if agent.agent_id in state.agents else state
    return replaced(state, agents=state.agents.set(agent.agent_id, agent))


def recount_pool(state: State, name: str, members: tuple[str, ...]) -> State:
    """Count all that the pool's agents offer anew. `members` are the joined ones, sorted."""
    agents = [state.agents[agent_id] for agent_id in members]
    gpu_agents = sum(agent.kind == "cuda" for agent in agents)
    pool = replaced(pool_of(state, name), agents=members, gpu_agents=gpu_agents, capacity=0, free=0, idle=())
    changed = [replaced(agent, free=free_slots(pool, agent)) for agent in agents]
    pool = replaced(
        pool,
        capacity=sum(len(usable_slots(pool, agent)) for agent in changed),
        free=sum(len(agent.free) for agent in changed),
        idle=tuple(sorted((len(agent.free), agent.agent_id) for agent in changed if agent.free)),
        auxiliary_room=tuple(sorted(_room(agent) for agent in changed if takes_auxiliary(agent))),
    )
    for agent in changed:
        state = _set_agent(state, agent)
    return put_pool(state, pool)


def recount_coming(state: State, name: str) -> State:
    pool = pool_of(state, name)
    coming = sum(slots_coming_back(state, pool, state.allocations[item]) for item in pool.leaving)
    return state if coming == pool.coming else put_pool(state, replaced(pool, coming=coming))


def use(state: State, item: str, slots: SlotSet, change: Callable[[tuple[Use, ...], Use], tuple[Use, ...]]) -> State:
    """Take an allocation's slots from their agents, or give them back."""
    for agent_id, slot_ids in slots:
        old = state.agents[agent_id]
        used = old.used
        for slot in slot_ids:
            used = change(used, (slot, item))
        pool = pool_of(state, old.pool)
        agent = replaced(old, used=used)
        agent = replaced(agent, free=free_slots(pool, agent))
        idle = without_item(pool.idle, (len(old.free), agent_id)) if old.free else pool.idle
        idle = with_item(idle, (len(agent.free), agent_id)) if agent.free else idle
        pool = replaced(pool, idle=idle, free=pool.free - len(old.free) + len(agent.free))
        state = _set_agent(put_pool(state, pool), agent)
    return state


def use_auxiliary(state: State, item: str, slots: SlotSet, change: Callable[[tuple[str, ...], str], tuple[str, ...]]) -> State:
    """Count a trial without slots to its agent, or out."""
    for agent_id, _ in slots:
        old = state.agents[agent_id]
        agent = replaced(old, auxiliary=change(old.auxiliary, item))
        pool = pool_of(state, old.pool)
        room = without_item(pool.auxiliary_room, _room(old))
        room = with_item(room, _room(agent)) if takes_auxiliary(agent) else room
        state = _set_agent(put_pool(state, replaced(pool, auxiliary_room=room)), agent)
    return state


def victim(experiment: Experiment, allocation: Allocation) -> tuple[int, int, int, str]:
    return (-experiment.priority, allocation.size, -allocation.since_us, allocation.allocation_id)
