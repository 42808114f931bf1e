"""The state as canonical JSON: primary facts only, sorted, so that equal states give equal bytes. Indexes are made anew."""

from __future__ import annotations

import json
from typing import Any

from immutables import Map

from tenuto.services.scheduler.indexes import rebuild
from tenuto.services.scheduler.state import Agent, Allocation, Experiment, State, Trial


def dump(state: State) -> bytes:
    facts = {
        "agents": [_agent(state.agents[key]) for key in sorted(state.agents)],
        "allocations": [_allocation(state.allocations[key]) for key in sorted(state.allocations)],
        "experiments": [_experiment(state.experiments[key]) for key in sorted(state.experiments)],
        "grants": state.grants,
    }
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()


def load(data: bytes) -> State:
    facts = json.loads(data)
    return rebuild(
        experiments=[_load_experiment(item) for item in facts["experiments"]],
        agents=[Agent(**item | {"slots": tuple(item["slots"]), "disabled": tuple(item["disabled"])}) for item in facts["agents"]],
        allocations=[_load_allocation(item) for item in facts["allocations"]],
        grants=facts["grants"],
    )


def _agent(agent: Agent) -> dict[str, Any]:
    return {
        "agent_id": agent.agent_id,
        "pool": agent.pool,
        "kind": agent.kind,
        "slots": agent.slots,
        "disabled": agent.disabled,
        "drained": agent.drained,
        "lost": agent.lost,
    }


def _allocation(allocation: Allocation) -> dict[str, Any]:
    return {
        "allocation_id": allocation.allocation_id,
        "experiment_id": allocation.experiment_id,
        "trial_number": allocation.trial_number,
        "pool": allocation.pool,
        "slots": allocation.slots,
        "grant": allocation.grant,
        "leaving": allocation.leaving,
        "outcome": allocation.outcome,
    }


def _load_allocation(item: dict[str, Any]) -> Allocation:
    slots = tuple((agent_id, tuple(slot_ids)) for agent_id, slot_ids in item["slots"])
    return Allocation(**item | {"slots": slots})


def _experiment(experiment: Experiment) -> dict[str, Any]:
    trials = [experiment.trials[number] for number in sorted(experiment.trials)]
    return {
        "experiment_id": experiment.experiment_id,
        "pool": experiment.pool,
        "priority": experiment.priority,
        "slots_per_trial": experiment.slots_per_trial,
        "max_slots": experiment.max_slots,
        "paused": experiment.paused,
        "canceled": experiment.canceled,
        "ended": experiment.ended,
        "trials": [[trial.number, trial.phase, trial.verdict_of, trial.grants] for trial in trials],
    }


def _load_experiment(item: dict[str, Any]) -> Experiment:
    trials = Map({number: Trial(number, phase, verdict_of, grants) for number, phase, verdict_of, grants in item["trials"]})
    return Experiment(**item | {"trials": trials})
