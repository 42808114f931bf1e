"""Changes of the launcher's state that keep its indexes right."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from tenuto.schemas.ids import experiment_of
from tenuto.services.launcher.state import Allocation, Experiment, State, Trial
from tenuto.services.launcher.state.nodes import Node, pool_and_number

Index = Map[str, tuple[str, ...]]


def put_experiment(state: State, experiment: Experiment) -> State:
    return replace(state, experiments=state.experiments.set(experiment.experiment_id, experiment))


def put_trial(state: State, trial: Trial) -> State:
    experiment = state.experiments[experiment_of(trial.trial_id)]
    if trial.pause_of:
        state = replace(state, pauses=state.pauses.set(trial.trial_id, trial.restart_at_us))
    else:
        state = without_pause(state, trial.trial_id)
    return put_experiment(state, replace(experiment, trials=experiment.trials.set(trial.trial_id, trial)))


def without_pause(state: State, trial_id: str) -> State:
    return replace(state, pauses=state.pauses.delete(trial_id)) if trial_id in state.pauses else state


def put_allocation(state: State, allocation: Allocation) -> State:
    return replace(state, allocations=state.allocations.set(allocation.allocation_id, allocation))


def added(index: Index, key: str, item: str) -> Index:
    items = index.get(key, ())
    return index if item in items else index.set(key, tuple(sorted((*items, item))))


def removed(index: Index, key: str, item: str) -> Index:
    """Keeps no empty lists, so that an index is a function of the allocations alone."""
    items = tuple(other for other in index.get(key, ()) if other != item)
    if items:
        return index.set(key, items)
    return index.delete(key) if key in index else index


def node_of(state: State, agent_id: str) -> Node | None:
    """The node on record that has this name."""
    pool = state.pools.get(pool_and_number(agent_id)[0])
    return pool.nodes.get(agent_id) if pool is not None else None
