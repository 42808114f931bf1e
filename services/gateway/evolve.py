"""Folds events into the gateway's state."""

from __future__ import annotations

from dataclasses import replace

from tenuto.schemas.config import CustomSearcher
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import (
    ExperimentCancelRequested,
    ExperimentMoved,
    ExperimentPauseRequested,
    ExperimentPoolChanged,
    ExperimentPriorityChanged,
    ExperimentResumeRequested,
    ExperimentSlotLimitChanged,
    ExperimentSubmitted,
    ExperimentTrialLimitsChanged,
    ExperimentWeightChanged,
    PoolPolicyChanged,
    Request,
    SearchOperationsRequested,
    ShareChanged,
    UserCreated,
    UserRemoved,
)
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed
from tenuto.schemas.operations import Create
from tenuto.services.gateway.state import Live, Share, State, User


def evolve(state: State, event: Event) -> State:
    data = event.data
    if isinstance(data, ExperimentSubmitted):
        resources = data.config.resources
        live = Live(
            data.experiment_id,
            resources.priority,
            resources.weight,
            resources.max_slots,
            place=float(data.experiment_id),
            pool=resources.pool,
            user=data.user,
            method=data.config.searcher.name,
            trials_max=searcher.max_trials if isinstance(searcher := data.config.searcher, CustomSearcher) else 0,
        )
        submitted = max(state.submitted, data.experiment_id)
        return replace(state, submitted=submitted, live=state.live.set(data.experiment_id, live))
    if isinstance(data, UserCreated):
        return _with_user(_without_user(state, data.name), User(data.name, data.admin, data.token_hash))
    if isinstance(data, ShareChanged):
        share = Share(data.weight, data.max_slots)
        return replace(state, shares=state.shares.set(f"{data.owner}/{data.name}", share))
    if isinstance(data, PoolPolicyChanged):
        hours = data.usage_half_life_hours
        if hours is not None:
            return replace(state, half_lives=state.half_lives.set(data.pool, hours))
        return replace(state, half_lives=state.half_lives.delete(data.pool)) if data.pool in state.half_lives else state
    if isinstance(data, UserRemoved):
        return _without_user(state, data.name)
    if isinstance(data, (ExperimentCompleted, ExperimentFailed, ExperimentCanceled)):
        return replace(state, live=state.live.delete(data.experiment_id)) if data.experiment_id in state.live else state
    if isinstance(data, Request) and data.experiment_id in state.live:
        return replace(state, live=state.live.set(data.experiment_id, _changed(state.live[data.experiment_id], data)))
    return state


def _with_user(state: State, user: User) -> State:
    return replace(state, users=state.users.set(user.name, user), names=state.names.set(user.token_hash, user.name))


def _without_user(state: State, name: str) -> State:
    user = state.users.get(name)
    if user is None:
        return state
    return replace(state, users=state.users.delete(name), names=state.names.delete(user.token_hash))


def _changed(live: Live, data: Request) -> Live:
    if isinstance(data, ExperimentPauseRequested):
        return replace(live, paused=True)
    if isinstance(data, ExperimentResumeRequested):
        return replace(live, paused=False)
    if isinstance(data, ExperimentCancelRequested):
        return replace(live, canceled=True, killed=live.killed or data.kill)
    if isinstance(data, ExperimentPriorityChanged):
        return replace(live, priority=data.priority)
    if isinstance(data, ExperimentWeightChanged):
        return replace(live, weight=data.weight)
    if isinstance(data, ExperimentSlotLimitChanged):
        return replace(live, max_slots=data.max_slots)
    if isinstance(data, ExperimentMoved):
        return replace(live, place=data.place)
    if isinstance(data, ExperimentPoolChanged):
        return replace(live, pool=data.pool)
    if isinstance(data, SearchOperationsRequested):
        return replace(live, created=live.created + sum(isinstance(item, Create) for item in data.operations))
    if isinstance(data, ExperimentTrialLimitsChanged) and data.max_trials is not None and live.trials_max:
        return replace(live, trials_max=data.max_trials)
    return live
