"""The state with all indexes made anew from its primary facts: what a snapshot keeps, and what `check` compares with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from immutables import Map

from tenuto.services.scheduler.state import Agent, Allocation, Closed, Experiment, PoolPolicy, Share, State, Usage, policy_of
from tenuto.services.scheduler.state.allocations import counted, own, usage_keys
from tenuto.services.scheduler.state.indexes import pool_of, put_experiment, put_pool, recount_pool, returns


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
    used: dict[str, list[tuple[int, str]]] = {agent.agent_id: [] for agent in facts.agents}
    auxiliary: dict[str, list[str]] = {agent.agent_id: [] for agent in facts.agents}
    live: dict[int, list[Allocation]] = {experiment.experiment_id: [] for experiment in facts.experiments}
    for allocation in facts.allocations:
        live[allocation.experiment_id].append(allocation)
        if not allocation.size:
            auxiliary[allocation.slots[0][0]].append(allocation.allocation_id)
        for agent_id, slot_ids in (*allocation.slots, *allocation.gained):
            used[agent_id].extend((slot, allocation.allocation_id) for slot in slot_ids)
    agents = [
        replace(
            agent,
            used=tuple(sorted(used[agent.agent_id])),
            auxiliary=tuple(sorted(auxiliary[agent.agent_id])),
            closed=facts.closed.get(agent.agent_id),
        )
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


def _put_back(state: State, experiment: Experiment, live: list[Allocation]) -> State:
    holder = {allocation.trial_number: allocation.allocation_id for allocation in live}
    trials = {
        number: replace(experiment.trials[number], allocation_id=holder.get(number, "")) for number in sorted(experiment.trials)
    }
    returning = tuple(number for number, trial in trials.items() if returns(state, trial))
    slots = sum(allocation.size_kept for allocation in live)
    state = put_experiment(
        state,
        replace(
            experiment,
            trials=Map(trials),
            waiting=tuple(number for number, trial in trials.items() if trial.waits),
            returning=returning,
            kept_away=tuple(number for number, trial in trials.items() if trial.excluded),
            allocations=tuple(sorted(allocation.allocation_id for allocation in live)),
            slots_used=slots,
        ),
    )
    return own(state, experiment, slots) if slots else state


def _with_counts(state: State, allocations: list[Allocation]) -> State:
    for allocation in allocations:
        state = put_pool(state, counted(state, pool_of(state, allocation.pool), allocation, 1))
    usage = state.usage
    for name in sorted({allocation.pool for allocation in allocations}):
        if not policy_of(state, name).half_life_us:
            continue
        for allocation in allocations:
            counts = allocation.pool == name and allocation.size
            for key in usage_keys(name, state.experiments[allocation.experiment_id]) if counts else ():
                usage = usage.set(key, replace(usage[key], slots=usage[key].slots + allocation.size))
    return replace(state, usage=usage)
