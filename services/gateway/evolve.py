"""Folds events into the gateway's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from immutables import Map

from tenuto.kernel.folding import Envelope, Fold, Folds, WithEnvelope, unchanged
from tenuto.schemas.config import CustomSearcher
from tenuto.schemas.events import EVENT_MODELS, EventData
from tenuto.schemas.events.automation import ExperimentRuleActed, WorkspaceRulesChanged
from tenuto.schemas.events.people import UserGroupsSet, UserLinked, UserPasswordSet
from tenuto.schemas.events.pool import AllocationGranted, AllocationReleased
from tenuto.schemas.events.request import (
    ExperimentCancelRequested,
    ExperimentDeleted,
    ExperimentDeletionCanceled,
    ExperimentDeletionRequested,
    ExperimentDescribed,
    ExperimentMoved,
    ExperimentPauseRequested,
    ExperimentPoolChanged,
    ExperimentPriorityChanged,
    ExperimentResumeRequested,
    ExperimentSlotLimitChanged,
    ExperimentSubmitted,
    ExperimentTimeLimitChanged,
    ExperimentTrialLimitsChanged,
    ExperimentWeightChanged,
    PoolPolicyChanged,
    SearchOperationsRequested,
    ShareChanged,
    TokenCreated,
    TokenRevoked,
    UserCreated,
    UserRemoved,
)
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.events.unmanaged import UnmanagedExperimentCreated, UnmanagedTrialChanged, UnmanagedTrialStarted
from tenuto.schemas.operations import Create
from tenuto.services.gateway.policies import joining, nodes, templates
from tenuto.services.gateway.policies.access import OF_ACCESS, without_holder, workspace_of
from tenuto.services.gateway.policies.access import fold as fold_access
from tenuto.services.gateway.policies.acting import fold as fold_rules
from tenuto.services.gateway.policies.notices import OF_WEBHOOKS
from tenuto.services.gateway.policies.notices import fold as fold_notices
from tenuto.services.gateway.policies.triggers import CAUSES_ELSEWHERE
from tenuto.services.gateway.policies.waits import OF_DEMANDS
from tenuto.services.gateway.policies.wall_time import granted, released
from tenuto.services.gateway.state import DELETED_MAX, Deletion, Live, Share, State, Token, Unmanaged, User, origins_of


def of_running(fold: Callable[[Live, Any, Envelope], Live]) -> WithEnvelope[State]:
    """`of_live` for a fold that reads the time."""

    def folded(state: State, data: Any, envelope: Envelope) -> State:
        return of_live(lambda live, item: fold(live, item, envelope))(state, data)

    return WithEnvelope(folded)


def of_live(fold: Callable[[Live, Any], Live]) -> Callable[[State, Any], State]:
    """Of the experiment that the event names. One that has ended has no state any more."""

    def folded(state: State, data: Any) -> State:
        live = state.live.get(data.experiment_id)
        return state if live is None else replace(state, live=state.live.set(data.experiment_id, fold(live, data)))

    return folded


def submitted(state: State, data: ExperimentSubmitted) -> State:
    resources = data.config.resources
    live = Live(
        data.experiment_id,
        resources.priority,
        resources.weight,
        resources.max_slots,
        place=float(data.experiment_id),
        pool=resources.pool,
        user=data.user,
        workspace=resources.workspace,
        method=data.config.searcher.name,
        origins=origins_of(data.config, data.parent),
        trials_max=searcher.max_trials if isinstance(searcher := data.config.searcher, CustomSearcher) else 0,
        max_wall_hours=resources.max_wall_hours or 0.0,
        workspace_hours_max=workspace_of(state.access, resources.workspace).wall_hours_max,
    )
    count = max(state.submitted, data.experiment_id)
    access = fold_access(state.access, data)
    return replace(state, submitted=count, live=state.live.set(data.experiment_id, live), access=access)


def ended(state: State, data: ExperimentCompleted | ExperimentFailed | ExperimentCanceled) -> State:
    return replace(state, live=state.live.delete(data.experiment_id)) if data.experiment_id in state.live else state


def paused(live: Live, _: ExperimentPauseRequested) -> Live:
    return replace(live, paused=True)


def resumed(live: Live, _: ExperimentResumeRequested) -> Live:
    return replace(live, paused=False)


def canceled(live: Live, data: ExperimentCancelRequested) -> Live:
    return replace(live, canceled=True, killed=live.killed or data.kill)


def priority_changed(live: Live, data: ExperimentPriorityChanged) -> Live:
    return replace(live, priority=data.priority)


def weight_changed(live: Live, data: ExperimentWeightChanged) -> Live:
    return replace(live, weight=data.weight)


def slot_limit_changed(live: Live, data: ExperimentSlotLimitChanged) -> Live:
    return replace(live, max_slots=data.max_slots)


def time_limit_changed(live: Live, data: ExperimentTimeLimitChanged) -> Live:
    return replace(live, max_wall_hours=data.max_wall_hours or 0.0)


def moved(live: Live, data: ExperimentMoved) -> Live:
    return replace(live, place=data.place)


def pool_changed(live: Live, data: ExperimentPoolChanged) -> Live:
    return replace(live, pool=data.pool)


def operations_requested(live: Live, data: SearchOperationsRequested) -> Live:
    return replace(live, created=live.created + sum(isinstance(item, Create) for item in data.operations))


def trial_limits_changed(live: Live, data: ExperimentTrialLimitsChanged) -> Live:
    return replace(live, trials_max=data.max_trials) if data.max_trials is not None and live.trials_max else live


def unmanaged_created(state: State, data: UnmanagedExperimentCreated) -> State:
    made = state.unmanaged.set(data.experiment_id, Unmanaged(data.name, data.user))
    return replace(state, submitted=max(state.submitted, data.experiment_id), unmanaged=made)


def unmanaged_started(state: State, data: UnmanagedTrialStarted) -> State:
    known = state.unmanaged.get(data.experiment_id)
    if known is None:
        return state
    return replace(state, unmanaged=state.unmanaged.set(data.experiment_id, known._replace(trials=data.trial_number)))


def described(state: State, data: ExperimentDescribed) -> State:
    """The name of an experiment of unmanaged runs is how programs find it."""
    known = state.unmanaged.get(data.experiment_id)
    if known is None or data.name is None:
        return state
    return replace(state, unmanaged=state.unmanaged.set(data.experiment_id, known._replace(name=data.name)))


def share_changed(state: State, data: ShareChanged) -> State:
    share = Share(data.weight, data.max_slots)
    return replace(state, shares=state.shares.set(f"{data.owner}/{data.name}", share))


def deletion_requested(state: State, data: ExperimentDeletionRequested, envelope: Envelope) -> State:
    deletion = Deletion(data.user, envelope.time_us, data.due_us)
    return replace(state, deletions=state.deletions.set(data.experiment_id, deletion))


def deletion_canceled(state: State, data: ExperimentDeletionCanceled) -> State:
    known = data.experiment_id in state.deletions
    return replace(state, deletions=state.deletions.delete(data.experiment_id)) if known else state


def deleted(state: State, data: ExperimentDeleted) -> State:
    deletions = state.deletions.delete(data.experiment_id) if data.experiment_id in state.deletions else state.deletions
    unmanaged = state.unmanaged.delete(data.experiment_id) if data.experiment_id in state.unmanaged else state.unmanaged
    kept = (*state.deleted, data.experiment_id)[-DELETED_MAX:]
    return replace(state, deletions=deletions, unmanaged=unmanaged, deleted=kept)


def policy_changed(state: State, data: PoolPolicyChanged) -> State:
    hours = data.usage_half_life_hours
    if hours is not None:
        return replace(state, half_lives=state.half_lives.set(data.pool, hours))
    return replace(state, half_lives=state.half_lives.delete(data.pool)) if data.pool in state.half_lives else state


def user_created(state: State, data: UserCreated, envelope: Envelope) -> State:
    since_us = envelope.time_us
    user = User(data.name, data.admin, state.submitted + 1, since_us, service=data.service, owner=data.owner)
    made = replace(_without_user(state, data.name), users=state.users.set(data.name, user))
    return _with_token(made, Token(data.token_hash, data.name, envelope.time_us, data.expires_us)) if data.token_hash else made


def user_removed(state: State, data: UserRemoved) -> State:
    user = state.users.get(data.name)
    if user is not None and user.subject:
        state = replace(state, barred=state.barred.set(user.subject, user.name))
    access = without_holder(without_holder(state.access, f"user/{data.name}"), f"service/{data.name}")
    return replace(_without_user(state, data.name), access=access)


def access_changed(state: State, data: EventData) -> State:
    return replace(state, access=fold_access(state.access, data))


def token_created(state: State, data: TokenCreated, envelope: Envelope) -> State:
    token = Token(
        data.token_hash,
        data.user,
        envelope.time_us,
        data.expires_us,
        data.label,
        permissions=data.permissions,
        workspace=data.workspace or "",
        session=data.session,
    )
    return _with_token(state, token)


def token_revoked(state: State, data: TokenRevoked) -> State:
    gone = [token for token in state.tokens_of(data.user) if token.id == data.token_id]
    return replace(state, tokens=_without(state.tokens, gone))


def password_set(state: State, data: UserPasswordSet) -> State:
    user = state.users.get(data.name)
    if user is None:
        return state
    user = replace(user, password_id=data.password_id, must_change=data.must_change)
    sessions = [token for token in state.tokens_of(data.name) if token.session]
    return replace(state, users=state.users.set(data.name, user), tokens=_without(state.tokens, sessions))


def user_linked(state: State, data: UserLinked) -> State:
    user = state.users.get(data.name)
    if user is None:
        return state
    user = replace(user, subject=data.subject, link_expected=not data.subject)
    barred = state.barred.delete(data.subject) if data.subject in state.barred else state.barred
    return replace(state, users=state.users.set(data.name, user), barred=barred)


def groups_set(state: State, data: UserGroupsSet) -> State:
    user = state.users.get(data.name)
    return state if user is None else replace(state, users=state.users.set(data.name, replace(user, groups=data.groups)))


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
    users = state.users.delete(name)
    for other in sorted(users):
        if users[other].owner == name:  # and nobody's who gets the name later
            users = users.set(other, replace(users[other], owner=""))
    return replace(state, users=users, tokens=_without(state.tokens, state.tokens_of(name)))


ONLY_DECIDED_ON = (
    CAUSES_ELSEWHERE
    - {"ValidationReported", "ExperimentCompleted", "ExperimentFailed", "ExperimentCanceled"}
    - {kind.TYPE for kind in (*OF_DEMANDS, *nodes.OF_NODES)}
)
"""Types of events that a notice may be about, and that change nothing themselves."""


def and_notices(fold: Fold[State] = unchanged) -> Fold[State]:
    """The fold, and what the event means for notices."""

    def folded(state: State, data: Any, envelope: Envelope) -> State:
        state = fold.fold(state, data, envelope) if isinstance(fold, WithEnvelope) else fold(state, data)
        acting = fold_rules(state, data)
        if acting is not state.acting:
            state = replace(state, acting=acting)
        notices = fold_notices(state.notices, data, envelope.time_us)
        return state if notices is state.notices else replace(state, notices=notices)

    return WithEnvelope(folded)


FOLDS: Folds[State] = Folds(
    "gateway",
    {
        **{EVENT_MODELS[name]: unchanged for name in sorted(ONLY_DECIDED_ON)},
        ValidationReported: and_notices(),
        **{kind: and_notices() for kind in OF_DEMANDS},
        AllocationGranted: and_notices(of_running(granted)),
        AllocationReleased: and_notices(of_running(released)),
        **{kind: and_notices() for kind in OF_WEBHOOKS},
        ExperimentSubmitted: and_notices(submitted),
        ExperimentDescribed: and_notices(described),
        ExperimentRuleActed: and_notices(),
        WorkspaceRulesChanged: and_notices(),
        ExperimentCompleted: and_notices(ended),
        ExperimentFailed: and_notices(ended),
        ExperimentCanceled: and_notices(ended),
        ExperimentPauseRequested: and_notices(of_live(paused)),
        ExperimentResumeRequested: and_notices(of_live(resumed)),
        ExperimentCancelRequested: of_live(canceled),
        ExperimentPriorityChanged: of_live(priority_changed),
        ExperimentWeightChanged: of_live(weight_changed),
        ExperimentSlotLimitChanged: of_live(slot_limit_changed),
        ExperimentTimeLimitChanged: of_live(time_limit_changed),
        ExperimentMoved: of_live(moved),
        ExperimentPoolChanged: of_live(pool_changed),
        ExperimentTrialLimitsChanged: of_live(trial_limits_changed),
        SearchOperationsRequested: of_live(operations_requested),
        ExperimentDeletionRequested: WithEnvelope(deletion_requested),
        ExperimentDeletionCanceled: deletion_canceled,
        ExperimentDeleted: deleted,
        **dict.fromkeys(OF_ACCESS, access_changed),
        **dict.fromkeys(templates.OF_TEMPLATES, templates.changed),
        **dict.fromkeys(joining.OF_JOINING, WithEnvelope(joining.changed)),
        **dict.fromkeys(nodes.OF_NODES, and_notices(WithEnvelope(nodes.changed))),
        UnmanagedExperimentCreated: unmanaged_created,
        UnmanagedTrialStarted: unmanaged_started,
        UnmanagedTrialChanged: unchanged,
        ShareChanged: share_changed,
        PoolPolicyChanged: policy_changed,
        UserCreated: WithEnvelope(user_created),
        UserRemoved: user_removed,
        TokenCreated: WithEnvelope(token_created),
        TokenRevoked: token_revoked,
        UserPasswordSet: password_set,
        UserLinked: user_linked,
        UserGroupsSet: groups_set,
    },
)
evolve = FOLDS.evolve
