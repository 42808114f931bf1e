"""Derived fields of the state, computed anew from the fields that a snapshot stores. `check` compares with them."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from tenuto.kernel.codec import Codec
from tenuto.services.scheduler.state import Allocation, Experiment, State, policy_of
from tenuto.services.scheduler.state.allocations import counted, own, usage_keys
from tenuto.services.scheduler.state.indexes import pool_of, put_experiment, put_pool, recount_pool, returns
from tenuto.services.scheduler.state.usable import closed_slots


def derive(state: State) -> State:
    """Complete state, derived from a state with its facts only, as a snapshot stores it."""
    experiments = [state.experiments[key] for key in sorted(state.experiments)]
    allocations = [state.allocations[key] for key in sorted(state.allocations)]
    used: dict[str, list[tuple[int, str]]] = {agent_id: [] for agent_id in sorted(state.agents)}
    auxiliary: dict[str, list[str]] = {agent_id: [] for agent_id in sorted(state.agents)}
    live: dict[int, list[Allocation]] = {experiment.experiment_id: [] for experiment in experiments}
    for allocation in allocations:
        live[allocation.experiment_id].append(allocation)
        if not allocation.size:
            auxiliary[allocation.slots[0][0]].append(allocation.allocation_id)
        for agent_id, slot_ids in (*allocation.slots, *allocation.gained):
            used[agent_id].extend((slot, allocation.allocation_id) for slot in slot_ids)
    agents = [
        replace(
            state.agents[agent_id],
            used=tuple(sorted(used[agent_id])),
            auxiliary=tuple(sorted(auxiliary[agent_id])),
            closed=closed_slots(state, agent_id, ending=state.agents[agent_id].ending),
        )
        for agent_id in sorted(state.agents)
    ]
    joined: dict[str, list[str]] = {}
    for agent in agents:
        if not agent.lost:
            joined.setdefault(agent.pool, []).append(agent.agent_id)
    state = replace(state, agents=Map({agent.agent_id: agent for agent in agents}), experiments=Map())
    for name in sorted(joined):
        state = recount_pool(state, name, tuple(sorted(joined[name])))
    for experiment in experiments:
        state = _put_back(state, experiment, live[experiment.experiment_id])
    return _with_counts(state, allocations)


def _put_back(state: State, experiment: Experiment, live: list[Allocation]) -> State:
    """The state with the experiment in it, its derived fields computed anew. `live`: its allocations."""
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


CODEC = Codec(State, derive)
