"""Folds events into the gateway's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from immutables import Map

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
    TokenCreated,
    TokenRevoked,
    UserCreated,
    UserRemoved,
)
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed
from tenuto.schemas.operations import Create
from tenuto.services.gateway.state import Live, Share, State, Token, User


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
        user = User(data.name, data.admin, state.submitted + 1)
        made = replace(_without_user(state, data.name), users=state.users.set(data.name, user))
        return _with_token(made, Token(data.token_hash, data.name, event.time_us, data.expires_us))
    if isinstance(data, TokenCreated):
        return _with_token(state, Token(data.token_hash, data.user, event.time_us, data.expires_us, data.label))
    if isinstance(data, TokenRevoked):
        gone = [token for token in state.tokens_of(data.user) if token.id == data.token_id]
        return replace(state, tokens=_without(state.tokens, gone))
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


def _with_token(state: State, token: Token) -> State:
    """The user's expired ones are forgotten."""
    expired = [other for other in state.tokens_of(token.user) if not other.holds(token.created_us)]
    return replace(state, tokens=_without(state.tokens, expired).set(token.token_hash, token))


def _without(tokens: Map[str, Token], gone: Sequence[Token]) -> Map[str, Token]:
    for token in gone:
        tokens = tokens.delete(token.token_hash)
    return tokens


def _without_user(state: State, name: str) -> State:
    if name not in state.users:
        return state
    return replace(state, users=state.users.delete(name), tokens=_without(state.tokens, state.tokens_of(name)))


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
