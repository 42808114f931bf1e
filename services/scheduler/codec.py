"""The state as canonical JSON: primary facts only, sorted, so that equal states give equal bytes. Indexes are made anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from immutables import Map

from tenuto.services.scheduler.state import (
    Agent,
    Allocation,
    Closed,
    Constraints,
    Experiment,
    Phase,
    PoolPolicy,
    Share,
    State,
    Trial,
    Usage,
)
from tenuto.services.scheduler.state.rebuild import Facts, rebuild


def dump(state: State) -> bytes:
    facts = {
        "agents": [_agent(state.agents[key]) for key in sorted(state.agents)],
        "allocations": [_allocation(state.allocations[key]) for key in sorted(state.allocations)],
        "experiments": [_experiment(state.experiments[key]) for key in sorted(state.experiments)],
        "grants": state.grants,
        "policies": {key: [state.policies[key].name, state.policies[key].half_life_us] for key in sorted(state.policies)},
        "shares": {key: [state.shares[key].weight, state.shares[key].max_slots] for key in sorted(state.shares)},
        "closed": {key: [state.closed[key].agent, state.closed[key].slots] for key in sorted(state.closed)},
        "usage": {key: [state.usage[key].amount, state.usage[key].at_us] for key in sorted(state.usage)},
    }
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()


def load(data: bytes) -> State:
    """Also what an older version kept: a fact that it did not know has its default."""
    facts = json.loads(data)
    return rebuild(
        Facts(
            experiments=[_load_experiment(item) for item in facts["experiments"]],
            agents=[_load_agent(item) for item in facts["agents"]],
            allocations=[_load_allocation(item) for item in facts["allocations"]],
            grants=facts["grants"],
            policies=Map({key: PoolPolicy(*value) for key, value in facts.get("policies", {}).items()}),
            shares=Map({key: Share(*value) for key, value in facts.get("shares", {}).items()}),
            closed=Map({key: Closed(agent, tuple(slots)) for key, (agent, slots) in facts.get("closed", {}).items()}),
            usage=Map({key: Usage(*value) for key, value in facts.get("usage", {}).items()}),
        )
    )


def _agent(agent: Agent) -> dict[str, Any]:
    return {
        "agent_id": agent.agent_id,
        "pool": agent.pool,
        "kind": agent.kind,
        "slots": agent.slots,
        "labels": agent.labels,
        "devices": agent.devices,
        "lost": agent.lost,
        "auxiliary_max": agent.auxiliary_max,
    }


def _load_agent(item: dict[str, Any]) -> Agent:
    lists = {key: tuple(item.get(key, ())) for key in ("slots", "labels", "devices")}
    return Agent(**item | lists)


def _allocation(allocation: Allocation) -> dict[str, Any]:
    return {
        "allocation_id": allocation.allocation_id,
        "experiment_id": allocation.experiment_id,
        "trial_number": allocation.trial_number,
        "pool": allocation.pool,
        "slots": allocation.slots,
        "grant": allocation.grant,
        "granted_us": allocation.granted_us,
        "since_us": allocation.since_us,
        "backfill_until_us": allocation.backfill_until_us,
        "leaving": allocation.leaving,
        "outcome": allocation.outcome,
        "next": allocation.next,
        "stays": allocation.stays,
    }


def _load_allocation(item: dict[str, Any]) -> Allocation:
    sets = {key: tuple((agent_id, tuple(ids)) for agent_id, ids in item.get(key, ())) for key in ("slots", "next")}
    return Allocation(**item | sets)


def _experiment(experiment: Experiment) -> dict[str, Any]:
    trials = [experiment.trials[number] for number in sorted(experiment.trials)]
    return {
        "experiment_id": experiment.experiment_id,
        "pool": experiment.pool,
        "priority": experiment.priority,
        "slots_per_trial": experiment.slots_per_trial,
        "max_slots": experiment.max_slots,
        "place": experiment.place,
        "weight": experiment.weight,
        "workspace": experiment.workspace,
        "user": experiment.user,
        "preemptible": experiment.preemptible,
        "expected_us": experiment.expected_us,
        "fallback_pools": experiment.fallback_pools,
        "constraints": asdict(experiment.constraints) if experiment.constraints else None,
        "slots_most": experiment.slots_most,
        "keep_us": experiment.keep_us,
        "width": experiment.width,
        "reserved_us": experiment.reserved_us,
        "idle_since_us": experiment.idle_since_us,
        "turn_until_us": experiment.turn_until_us,
        "paused": experiment.paused,
        "canceled": experiment.canceled,
        "ended": experiment.ended,
        "trials": [
            [trial.number, trial.phase, trial.verdict_of, trial.grants, trial.excluded, trial.pause_of] for trial in trials
        ],
    }


def _load_trial(
    number: int, phase: Phase, verdict_of: str, grants: int, excluded: Sequence[str] = (), pause_of: str = ""
) -> Trial:
    return Trial(number, phase, verdict_of, grants, excluded=tuple(excluded), pause_of=pause_of)


def _load_experiment(item: dict[str, Any]) -> Experiment:
    trials = Map({entry[0]: _load_trial(*entry) for entry in item["trials"]})
    asked = item.get("constraints")
    constraints = Constraints(**asked | {key: tuple(asked[key]) for key in ("labels", "exclude")}) if asked else None
    changes = {"trials": trials, "constraints": constraints, "fallback_pools": tuple(item.get("fallback_pools", ()))}
    return Experiment(**{"place": float(item["experiment_id"])} | item | changes)
