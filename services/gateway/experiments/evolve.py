"""Folds what was asked for experiments, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tenuto.kernel.folding import Envelope, Fold, WithEnvelope, unchanged
from tenuto.schemas.config import CustomSearcher
from tenuto.schemas.events import EventData
from tenuto.schemas.events.automation import ExperimentRuleActed, WorkspaceRulesChanged
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
    SearchOperationsRequested,
)
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.events.unmanaged import UnmanagedExperimentCreated, UnmanagedTrialChanged, UnmanagedTrialStarted
from tenuto.schemas.operations import Create
from tenuto.services.gateway.experiments.policies import rules
from tenuto.services.gateway.experiments.policies.wall_time import granted, released
from tenuto.services.gateway.experiments.state import DELETED_MAX, Deletion, ExperimentsState, Live, Unmanaged, origins_of
from tenuto.services.gateway.rights.access import fold as fold_access
from tenuto.services.gateway.rights.access import workspace_of


def of_running(fold: Callable[[Live, Any, Envelope], Live]) -> WithEnvelope[ExperimentsState]:
    """`of_live` for a fold that reads the time."""

    def folded(state: ExperimentsState, data: Any, envelope: Envelope) -> ExperimentsState:
        return of_live(lambda live, item: fold(live, item, envelope))(state, data)

    return WithEnvelope(folded)


def of_live(fold: Callable[[Live, Any], Live]) -> Callable[[ExperimentsState, Any], ExperimentsState]:
    """Fold of the state, from one of the experiment that the event names; an ended experiment has no state and is skipped."""

    def folded(state: ExperimentsState, data: Any) -> ExperimentsState:
        live = state.live.get(data.experiment_id)
        return state if live is None else replace(state, live=state.live.set(data.experiment_id, fold(live, data)))

    return folded


def submitted(state: ExperimentsState, data: ExperimentSubmitted) -> ExperimentsState:
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


def ended(state: ExperimentsState, data: ExperimentCompleted | ExperimentFailed | ExperimentCanceled) -> ExperimentsState:
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


def unmanaged_created(state: ExperimentsState, data: UnmanagedExperimentCreated) -> ExperimentsState:
    made = state.unmanaged.set(data.experiment_id, Unmanaged(data.name, data.user))
    return replace(state, submitted=max(state.submitted, data.experiment_id), unmanaged=made)


def unmanaged_started(state: ExperimentsState, data: UnmanagedTrialStarted) -> ExperimentsState:
    known = state.unmanaged.get(data.experiment_id)
    if known is None:
        return state
    return replace(state, unmanaged=state.unmanaged.set(data.experiment_id, known._replace(trials=data.trial_number)))


def described(state: ExperimentsState, data: ExperimentDescribed) -> ExperimentsState:
    """The name of an experiment of unmanaged runs is how programs find it."""
    known = state.unmanaged.get(data.experiment_id)
    if known is None or data.name is None:
        return state
    return replace(state, unmanaged=state.unmanaged.set(data.experiment_id, known._replace(name=data.name)))


def deletion_requested(state: ExperimentsState, data: ExperimentDeletionRequested, envelope: Envelope) -> ExperimentsState:
    deletion = Deletion(data.user, envelope.time_us, data.due_us)
    return replace(state, deletions=state.deletions.set(data.experiment_id, deletion))


def deletion_canceled(state: ExperimentsState, data: ExperimentDeletionCanceled) -> ExperimentsState:
    known = data.experiment_id in state.deletions
    return replace(state, deletions=state.deletions.delete(data.experiment_id)) if known else state


def deleted(state: ExperimentsState, data: ExperimentDeleted) -> ExperimentsState:
    deletions = state.deletions.delete(data.experiment_id) if data.experiment_id in state.deletions else state.deletions
    unmanaged = state.unmanaged.delete(data.experiment_id) if data.experiment_id in state.unmanaged else state.unmanaged
    kept = (*state.deleted, data.experiment_id)[-DELETED_MAX:]
    return replace(state, deletions=deletions, unmanaged=unmanaged, deleted=kept)


def rules_changed(state: ExperimentsState, data: EventData) -> ExperimentsState:
    """Rules compare with what stands before the event: notices fold it later."""
    acting = rules.fold(state, data)
    return state if acting is state.acting else replace(state, acting=acting)


FOLDS: Mapping[type[EventData], Fold[Any]] = {
    AllocationGranted: of_running(granted),
    AllocationReleased: of_running(released),
    ExperimentSubmitted: submitted,
    ExperimentDescribed: described,
    ExperimentCompleted: ended,
    ExperimentFailed: ended,
    ExperimentCanceled: ended,
    ExperimentPauseRequested: of_live(paused),
    ExperimentResumeRequested: of_live(resumed),
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
    UnmanagedExperimentCreated: unmanaged_created,
    UnmanagedTrialStarted: unmanaged_started,
    UnmanagedTrialChanged: unchanged,
}
RULE_FOLDS: Mapping[type[EventData], Fold[Any]] = dict.fromkeys(
    (
        ExperimentSubmitted,
        ValidationReported,
        ExperimentRuleActed,
        WorkspaceRulesChanged,
        ExperimentCompleted,
        ExperimentFailed,
        ExperimentCanceled,
    ),
    rules_changed,
)
"""Folds of rules, applied after FOLDS."""
