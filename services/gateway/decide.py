"""What the gateway decides: whether a request makes sense now, and what it changes. Asking twice changes nothing more."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Command, Refused
from tenuto.schemas.config.searchers import MAX_TRIALS_CHANGES
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import (
    ClusterRequest,
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
    ShareChanged,
    TokenRevoked,
    UserCreated,
    UserRemoved,
)
from tenuto.schemas.operations import Create, Extend, Stop
from tenuto.services.gateway.commands import (
    CancelExperiment,
    ChangeCluster,
    ChangeExperiment,
    ChangeTokens,
    ExperimentCommand,
    MoveExperiment,
    PauseExperiment,
    RequestOperations,
    ResumeExperiment,
    SubmitExperiment,
)
from tenuto.services.gateway.policies.permissions import Right, refusal
from tenuto.services.gateway.state import ADMIN, TOKENS_PER_USER_MAX, USERS_MAX, Live, State

RUNNING_NAMED_MAX = 5
"""Experiments in one sentence."""


def decide(state: State, cause: Event | Command) -> Sequence[EventData]:
    """Raises Refused for an experiment that is not known (not_found), has ended or is being canceled (conflict), or is
    somebody else's (forbidden)."""
    if isinstance(cause, SubmitExperiment):
        return [_submitted(state, cause)]
    if isinstance(cause, CancelExperiment):
        return _cancel(_live(state, cause), cause)
    if isinstance(cause, (PauseExperiment, ResumeExperiment)):
        live = _not_canceled(_live(state, cause))
        if live.paused == isinstance(cause, PauseExperiment):
            return ()
        if live.paused:
            return [ExperimentResumeRequested(experiment_id=live.experiment_id)]
        return [ExperimentPauseRequested(experiment_id=live.experiment_id)]
    if isinstance(cause, ChangeExperiment):
        return _change(_not_canceled(_live(state, cause)), cause)
    if isinstance(cause, MoveExperiment):
        return _move(state, _not_canceled(_live(state, cause)), cause)
    if isinstance(cause, RequestOperations):
        return _operations(_not_canceled(_live(state, cause)), cause)
    if isinstance(cause, ChangeTokens):
        return _tokens(state, cause)
    return _change_cluster(state, cause) if isinstance(cause, ChangeCluster) else ()


def _change_cluster(state: State, command: ChangeCluster) -> Sequence[EventData]:
    request = command.request
    if why := refusal(Right.ADMIN, command.user, admin=state.may_all(command.user)):
        raise Refused(why, "forbidden")
    if isinstance(request, UserCreated):
        if request.name == ADMIN or request.name in state.users:
            hint = f"`tenuto user token create {request.name}` makes another token"
            raise Refused(f"There is a user {request.name} already; {hint}.", "conflict")
        if len(state.users) >= USERS_MAX:
            raise Refused(f"There are {USERS_MAX} users, and no more are kept; remove one.", "conflict")
        if left := _left_behind(state, request.name):
            raise Refused(left, "conflict")
    if isinstance(request, UserRemoved) and request.name not in state.users:
        raise Refused(f"There is no user {request.name}; `tenuto user ls` lists those that there are.", "not_found")
    return [_with_what_stays(state, request, command.stays)]


def _left_behind(state: State, user: str) -> str:
    """Why nobody may have the name of a removed user yet; empty if somebody may. What still runs under it would be the new
    user's, and get secrets that the new user sets under the same names."""
    running = sorted(experiment_id for experiment_id, live in state.live.items() if live.user == user)
    if not running:
        return ""
    named = ", ".join(map(str, running[:RUNNING_NAMED_MAX])) + ", ..." * (len(running) > RUNNING_NAMED_MAX)
    return (
        f"Of an earlier user {user} experiments have not ended ({named}): end them with `tenuto exp kill`, wait for their end, "
        "or choose another name."
    )


def _tokens(state: State, command: ChangeTokens) -> Sequence[EventData]:
    owner, events = command.owner, list[EventData]()
    if why := refusal(Right.SELF, command.user, admin=state.may_all(command.user), owner=owner):
        raise Refused(why, "forbidden")
    if owner != ADMIN and owner not in state.users:
        raise Refused(f"There is no user {owner}; `tenuto user ls` lists those that there are.", "not_found")
    known = state.tokens_of(owner)
    if command.revoked_id and not any(token.id == command.revoked_id for token in known):
        raise Refused(f"{owner} has no token {command.revoked_id}; `tenuto user token ls {owner}` lists them.", "not_found")
    if command.created is not None:
        kept = [token for token in known if token.holds(command.time_us) and token.id != command.revoked_id]
        if len(kept) >= TOKENS_PER_USER_MAX:
            raise Refused(f"{owner} has {TOKENS_PER_USER_MAX} tokens, and no more are kept; revoke one.", "conflict")
        events.append(command.created)
    if command.revoked_id:
        events.append(TokenRevoked(user=owner, token_id=command.revoked_id))
    return events


def _with_what_stays(state: State, request: ClusterRequest, stays: frozenset[str]) -> ClusterRequest:
    """The event says all of a share or policy, so that it can be understood alone."""
    now: dict[str, float | int | None] = {}
    if isinstance(request, ShareChanged):
        share = state.shares.get(f"{request.owner}/{request.name}")
        now = share._asdict() if share is not None else {}
    elif isinstance(request, PoolPolicyChanged):
        now = {"usage_half_life_hours": state.half_lives.get(request.pool)}
    return request.model_copy(update={name: now[name] for name in sorted(stays & now.keys())})


def _live(state: State, command: ExperimentCommand) -> Live:
    live = state.live.get(command.experiment_id)
    if live is not None:
        admin, what = state.may_all(command.user), f"Experiment {live.experiment_id}"
        if why := refusal(Right.OWNER, command.user, admin=admin, owner=live.user, what=what):
            raise Refused(why, "forbidden")
        return live
    if 1 <= command.experiment_id <= state.submitted:
        raise Refused(f"Experiment {command.experiment_id} has already ended, so it cannot be changed.", "conflict")
    raise Refused(f"There is no experiment {command.experiment_id}; `tenuto exp ls` lists those that there are.", "not_found")


def _not_canceled(live: Live) -> Live:
    if live.canceled:
        raise Refused(f"Experiment {live.experiment_id} is being canceled, so it can only be killed.", "conflict")
    return live


def _move(state: State, live: Live, command: MoveExperiment) -> Sequence[EventData]:
    other = state.live.get(command.other_id)
    if other is None or other is live:
        what = "is the one to be moved" if other is live else "is not running or waiting"
        raise Refused(f"Experiment {command.other_id} {what}; give another one of the queue.", "invalid")
    if other.pool != live.pool:
        raise Refused(
            f"Experiment {other.experiment_id} is in pool {other.pool} and experiment {live.experiment_id} in pool {live.pool}; "
            "change its pool first.",
            "conflict",
        )
    queue = sorted(
        (state.live[key].place, key)
        for key in sorted(state.live)
        if state.live[key].priority == other.priority and state.live[key].pool == other.pool and key != live.experiment_id
    )
    at = queue.index((other.place, other.experiment_id)) + command.behind
    before = queue[at - 1][0] if at else queue[0][0] - 2
    after = queue[at][0] if at < len(queue) else queue[-1][0] + 2
    place = (before + after) / 2
    if not before < place < after:
        raise Refused(
            f"There is no more room beside experiment {other.experiment_id}; move it beside another, or change its priority.",
            "conflict",
        )
    changes: list[EventData] = []
    if other.priority != live.priority:
        changes.append(ExperimentPriorityChanged(experiment_id=live.experiment_id, priority=other.priority))
    return [*changes, ExperimentMoved(experiment_id=live.experiment_id, place=place)]


def _operations(live: Live, command: RequestOperations) -> Sequence[EventData]:
    if live.method != "custom":
        raise Refused(
            f"Experiment {live.experiment_id} is searched by {live.method}; only one with `searcher: {{name: custom}}` takes"
            " operations.",
            "conflict",
        )
    created = live.created
    for operation in command.request.operations:
        created += isinstance(operation, Create)
        if isinstance(operation, (Extend, Stop)) and operation.trial > created:
            raise Refused(
                f"There is no trial {operation.trial} to {operation.kind}: {created} were created so far, the n-th Create being"
                " trial n.",
                "invalid",
            )
    if created > max(live.created, live.trials_max):
        raise Refused(
            f"This would be trial {created} of at most {live.trials_max} (searcher.max_trials); `tenuto exp set"
            f" {live.experiment_id} --max-trials {created}` allows it.",
            "invalid",
        )
    return [command.request]


def _submitted(state: State, command: SubmitExperiment) -> ExperimentSubmitted:
    return ExperimentSubmitted(
        experiment_id=state.submitted + 1,
        config=command.config,
        seed=command.seed,
        context_hash=command.context_hash,
        context_size_bytes=command.context_size_bytes,
        user=command.user,
        origin=command.origin,
        parent=command.parent,
    )


def _cancel(live: Live, command: CancelExperiment) -> Sequence[EventData]:
    if live.killed or (live.canceled and not command.kill):
        return ()
    return [ExperimentCancelRequested(experiment_id=live.experiment_id, kill=command.kill)]


def _change(live: Live, command: ChangeExperiment) -> Sequence[EventData]:
    experiment_id = live.experiment_id
    changes: list[EventData] = []
    if command.priority != "keep" and command.priority != live.priority:
        changes.append(ExperimentPriorityChanged(experiment_id=experiment_id, priority=command.priority))
    if command.weight != "keep" and command.weight != live.weight:
        changes.append(ExperimentWeightChanged(experiment_id=experiment_id, weight=command.weight))
    if command.max_slots != "keep" and command.max_slots != live.max_slots:
        changes.append(ExperimentSlotLimitChanged(experiment_id=experiment_id, max_slots=command.max_slots))
    if command.pool and command.pool != live.pool:
        changes.append(ExperimentPoolChanged(experiment_id=experiment_id, pool=command.pool))
    if command.max_trials is not None and live.method not in MAX_TRIALS_CHANGES:
        raise Refused(
            f"max_trials of the {live.method} searcher cannot be changed while it runs: its trials are planned from the start."
            f" It can for {', '.join(sorted(MAX_TRIALS_CHANGES))}.",
            "invalid",
        )
    if command.max_trials is not None or command.max_concurrent_trials is not None:
        limits = ExperimentTrialLimitsChanged(
            experiment_id=experiment_id,
            max_trials=command.max_trials,
            max_concurrent_trials=command.max_concurrent_trials,
        )
        changes.append(limits)
    return changes
