"""Folds requests of users: experiments and changes of them, policies, shares, and slots out of service."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tenuto.kernel.folding import Envelope
from tenuto.schemas.config.environment import Environment
from tenuto.schemas.config.experiment import ExperimentConfig
from tenuto.schemas.config.resources import Resources, SlotRange
from tenuto.schemas.events import request as requests
from tenuto.schemas.events.agent import IMAGES_LABEL
from tenuto.services.scheduler.state import (
    Closed,
    Constraints,
    Experiment,
    PoolPolicy,
    Share,
    State,
    allocations,
    indexes,
)
from tenuto.services.scheduler.state.usable import closed_slots


def submitted(state: State, data: requests.ExperimentSubmitted, envelope: Envelope) -> State:
    resources = data.config.resources
    return indexes.put_experiment(
        state,
        Experiment(
            experiment_id=data.experiment_id,
            pool=resources.pool,
            priority=resources.priority,
            slots_per_trial=resources.slots_min,
            max_slots=resources.max_slots,
            # Not a whole number, as an experiment can be moved between two others.
            place=float(data.experiment_id),
            weight=resources.weight,
            workspace=resources.workspace,
            user=data.user,
            preemptible=resources.preemptible,
            idle_since_us=envelope.time_us,
            expected_us=None if resources.expected_seconds is None else round(resources.expected_seconds * 1e6),
            fallback_pools=resources.fallback_pools,
            constraints=_constraints(state, resources, data.config.environment),
            image=_pulled_ahead(data.config.environment),
            **_elastic(data.config),
        ),
    )


def _elastic(config: ExperimentConfig) -> dict[str, Any]:
    slots = config.resources.slots_per_trial
    if not isinstance(slots, SlotRange) or slots.max == slots.min:
        return {}
    at_once = getattr(config.searcher, "max_concurrent_trials", 1)
    trials = getattr(config.searcher, "max_trials", at_once)
    return {"slots_most": slots.max, "keep_us": round(slots.keep_seconds * 1e6), "width": min(at_once, trials)}


def _pulled_ahead(environment: Environment) -> str:
    """A node that nothing runs on yet has no credentials of a user."""
    return environment.image or "" if environment.pull != "never" and environment.registry_auth is None else ""


def _constraints(state: State, resources: Resources, environment: Environment) -> Constraints | None:
    asked = Constraints(
        locality=resources.locality,
        placement=resources.placement,
        device=(resources.device or "").lower(),
        labels=tuple(sorted((*resources.agent_labels, *([IMAGES_LABEL] if environment.image else [])))),
        exclude=tuple(sorted(resources.exclude_agents)),
        image=environment.node_image,
    )
    told_apart = any(pool in state.image_pools for pool in (resources.pool, *resources.fallback_pools))
    return None if asked == Constraints() and not told_apart else asked


def paused(state: State, data: requests.ExperimentPauseRequested) -> State:
    return indexes.change_experiment(state, data.experiment_id, paused=True, reserved_us=0)


def resumed(state: State, data: requests.ExperimentResumeRequested) -> State:
    return indexes.change_experiment(state, data.experiment_id, paused=False)


def priority_changed(state: State, data: requests.ExperimentPriorityChanged) -> State:
    return indexes.change_experiment(state, data.experiment_id, priority=data.priority, reserved_us=0)


def slot_limit_changed(state: State, data: requests.ExperimentSlotLimitChanged) -> State:
    return indexes.change_experiment(state, data.experiment_id, max_slots=data.max_slots)


def weight_changed(state: State, data: requests.ExperimentWeightChanged) -> State:
    return indexes.change_experiment(state, data.experiment_id, weight=data.weight)


def moved(state: State, data: requests.ExperimentMoved) -> State:
    return indexes.change_experiment(state, data.experiment_id, place=data.place, reserved_us=0)


def pool_changed(state: State, data: requests.ExperimentPoolChanged) -> State:
    experiment = state.experiments.get(data.experiment_id)
    if experiment is None:
        return state
    fallback = tuple(name for name in experiment.fallback_pools if name != data.pool)
    # In two steps, out of the old pools' queues and into the new ones'.
    state = indexes.put_experiment(state, replace(experiment, waiting=()))
    constraints = experiment.constraints
    if constraints is None and data.pool in state.image_pools:
        constraints = Constraints()
    moved = replace(experiment, pool=data.pool, fallback_pools=fallback, reserved_us=0, constraints=constraints)
    return indexes.put_experiment(state, moved)


def policy_changed(state: State, data: requests.PoolPolicyChanged, envelope: Envelope) -> State:
    half_life_us = 0 if data.usage_half_life_hours is None else round(data.usage_half_life_hours * 3_600_000_000)
    return allocations.set_policy(state, data.pool, PoolPolicy(data.policy, half_life_us), envelope.time_us, data.preempt)


def share_changed(state: State, data: requests.ShareChanged) -> State:
    share = Share(data.weight, data.max_slots)
    return replace(state, shares=state.shares.set(f"{data.owner}/{data.name}", share))


def slots_closed(state: State, data: requests.SlotsClosed) -> State:
    closed = state.closed.get(data.agent_id) or Closed()
    if data.slot_id is None:
        closed = replace(closed, agent=True)
    else:
        closed = replace(closed, slots=indexes.with_item(closed.slots, data.slot_id))
    return _set_closed(state, data.agent_id, closed)


def slots_opened(state: State, data: requests.SlotsOpened) -> State:
    closed = state.closed.get(data.agent_id) or Closed()
    slots = () if data.slot_id is None else indexes.without_item(closed.slots, data.slot_id)
    return _set_closed(state, data.agent_id, Closed(closed.agent and data.slot_id is not None, slots))


def _set_closed(state: State, agent_id: str, closed: Closed) -> State:
    if closed == Closed():
        state = replace(state, closed=state.closed.delete(agent_id)) if agent_id in state.closed else state
    else:
        state = replace(state, closed=state.closed.set(agent_id, closed))
    agent = state.agents.get(agent_id)
    if agent is None:
        return state
    return indexes.put_agent(state, replace(agent, closed=closed_slots(state, agent_id, ending=agent.ending)))


def cancel_requested(state: State, data: requests.ExperimentCancelRequested) -> State:
    """No more grants; the launcher makes the workers leave, and the search stops the trials."""
    return allocations.all_leave(indexes.change_experiment(state, data.experiment_id, canceled=True), data.experiment_id)
