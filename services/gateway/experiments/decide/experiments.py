"""Requests of users about experiments, and the events that follow."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.base import from_object
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.searchers import MAX_TRIALS_CHANGES
from tenuto.schemas.events import EventData
from tenuto.schemas.events.access import ExperimentProjectChanged
from tenuto.schemas.events.request import (
    ExperimentArchived,
    ExperimentCancelRequested,
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
    ExperimentUnarchived,
    ExperimentWeightChanged,
    SearchOperationsRequested,
)
from tenuto.schemas.operations import Create, Extend, Stop
from tenuto.services.gateway.experiments.commands import (
    ArchiveExperiment,
    CancelExperiment,
    ChangeExperiment,
    DescribeExperiment,
    ExperimentCommand,
    MoveExperiment,
    PauseExperiment,
    PutIntoProject,
    RecordCommand,
    RequestOperations,
    ResumeExperiment,
    SubmitExperiment,
    UnarchiveExperiment,
)
from tenuto.services.gateway.experiments.decide.rule_actions import check_rules
from tenuto.services.gateway.experiments.decide.unmanaged import check_name
from tenuto.services.gateway.experiments.policies.wall_time import HOUR_US, wall_us
from tenuto.services.gateway.experiments.state import ExperimentsState, Live, origins_of
from tenuto.services.gateway.rights.access import Principal, workspace_of
from tenuto.services.gateway.rights.permissions import CHANGES_EXPERIMENT, refusal
from tenuto.services.gateway.rights.workspaces import (
    check_limits,
    check_place,
    check_priority,
    check_project,
    check_slots,
    check_storage,
    check_wall_hours,
)


def check_new(state: ExperimentsState, subject: Principal, config: ExperimentConfig) -> None:
    """Checks that the subject may submit it. Raises Refused."""
    check_place(state, subject, config.resources.workspace, config.project)
    check_limits(state, config)


def check_fork(state: ExperimentsState, subject: Principal, config: ExperimentConfig) -> None:
    """Same as `check_new`, but for a fork that a rule makes: its workspace's stored bytes are not counted then, so the noted
    number applies. Raises Refused."""
    check_new(state, subject, config)
    check_storage(state, config.resources.workspace, workspace_of(state.access, config.resources.workspace).noted_bytes)


def submit(state: ExperimentsState, command: SubmitExperiment) -> Sequence[EventData]:
    subject = state.subject(command.user)
    check_new(state, subject, command.config)
    check_storage(state, command.config.resources.workspace, command.stored_bytes)
    for origin in origins_of(command.config, command.parent):
        if origin in state.deleted:
            raise Refused(f"Experiment {origin} is deleted, so no other can be made from it.", "conflict")
        if origin in state.deletions:
            what = f"Experiment {origin} is to be deleted, so no other can be made from it"
            raise Refused(f"{what}; `tenuto exp undelete {origin}` keeps it.", "conflict")
    check_rules(state, command, check_new)
    return [from_object(ExperimentSubmitted, command, experiment_id=state.submitted + 1)]


def pause(state: ExperimentsState, command: PauseExperiment) -> Sequence[EventData]:
    live = _not_canceled(_live(state, command))
    return () if live.paused else [ExperimentPauseRequested(experiment_id=live.experiment_id)]


def resume(state: ExperimentsState, command: ResumeExperiment) -> Sequence[EventData]:
    live = _not_canceled(_live(state, command))
    return [ExperimentResumeRequested(experiment_id=live.experiment_id)] if live.paused else ()


def cancel(state: ExperimentsState, command: CancelExperiment) -> Sequence[EventData]:
    live = _live(state, command)
    if live.killed or (live.canceled and not command.kill):
        return ()
    return [ExperimentCancelRequested(experiment_id=live.experiment_id, kill=command.kill)]


def change(state: ExperimentsState, command: ChangeExperiment) -> Sequence[EventData]:
    live = _not_canceled(_live(state, command))
    experiment_id = live.experiment_id
    changes: list[EventData] = []
    if command.priority != "keep" and command.priority != live.priority:
        check_priority(state, live.workspace, command.priority)
        changes.append(ExperimentPriorityChanged(experiment_id=experiment_id, priority=command.priority))
    if command.weight != "keep" and command.weight != live.weight:
        changes.append(ExperimentWeightChanged(experiment_id=experiment_id, weight=command.weight))
    if command.max_slots != "keep" and command.max_slots != live.max_slots:
        check_slots(state, live.workspace, command.max_slots)
        changes.append(ExperimentSlotLimitChanged(experiment_id=experiment_id, max_slots=command.max_slots))
    if command.max_wall_hours != "keep" and (command.max_wall_hours or 0.0) != live.max_wall_hours:
        _check_wall_hours(state, live, command.max_wall_hours, command.time_us)
        changes.append(ExperimentTimeLimitChanged(experiment_id=experiment_id, max_wall_hours=command.max_wall_hours))
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


def _check_wall_hours(state: ExperimentsState, live: Live, hours: float | None, now_us: int) -> None:
    """A limit that has passed would end the experiment at once, which is not what a change of a limit sounds like. Raises
    Refused."""
    check_wall_hours(state, live.workspace, hours)
    ran_us = wall_us(live, now_us)
    if hours is not None and ran_us >= hours * HOUR_US:
        raise Refused(
            f"Experiment {live.experiment_id} has run for {ran_us / HOUR_US:.3g} h, and this would let it run for {hours:g} h;"
            f" give it more, or end it (`tenuto exp cancel {live.experiment_id}`).",
            "conflict",
        )


def describe(state: ExperimentsState, command: DescribeExperiment) -> Sequence[EventData]:
    check_known(state, command)
    if not command.description.model_fields_set:
        return ()
    if command.description.name is not None:
        check_name(state, command.experiment_id, command.description.name)
    return [ExperimentDescribed(experiment_id=command.experiment_id, **dict(command.description))]


def archive(state: ExperimentsState, command: ArchiveExperiment) -> Sequence[EventData]:
    check_known(state, command)
    if command.experiment_id in state.live:
        raise Refused(
            f"Experiment {command.experiment_id} has not ended; archive it after its end (`tenuto exp kill` ends it).", "conflict"
        )
    return [ExperimentArchived(experiment_id=command.experiment_id)]


def unarchive(state: ExperimentsState, command: UnarchiveExperiment) -> Sequence[EventData]:
    check_known(state, command)
    return [ExperimentUnarchived(experiment_id=command.experiment_id)]


def put_into_project(state: ExperimentsState, command: PutIntoProject) -> Sequence[EventData]:
    check_known(state, command)
    if command.project:
        check_project(state, command.workspace, command.project)
    return [ExperimentProjectChanged(experiment_id=command.experiment_id, project=command.project)]


def move(state: ExperimentsState, command: MoveExperiment) -> Sequence[EventData]:
    live = _not_canceled(_live(state, command))
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
        check_priority(state, live.workspace, other.priority)
        changes.append(ExperimentPriorityChanged(experiment_id=live.experiment_id, priority=other.priority))
    return [*changes, ExperimentMoved(experiment_id=live.experiment_id, place=place)]


def request_operations(state: ExperimentsState, command: RequestOperations) -> Sequence[EventData]:
    live = _not_canceled(_live(state, command))
    if live.method != "custom":
        raise Refused(
            f"Experiment {live.experiment_id} is searched by {live.method}; only one with `searcher: {{name: custom}}` takes"
            " operations.",
            "conflict",
        )
    created = live.created
    for operation in command.operations:
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
    requested = SearchOperationsRequested(
        experiment_id=live.experiment_id,
        searcher=command.searcher,
        cause_id=str(command.cause_id),
        cause_position=command.cause_position,
        operations=command.operations,
    )
    return [requested]


def check_known(state: ExperimentsState, command: RecordCommand) -> None:
    """Raises Refused."""
    experiment_id, live = command.experiment_id, state.live.get(command.experiment_id)
    if not 1 <= experiment_id <= state.submitted:
        raise _no_experiment(experiment_id)
    owner = state.owner(command.submitter if live is None else live.user, experiment_id)
    _check_change(state, command, owner, command.workspace if live is None else live.workspace)


def _check_change(state: ExperimentsState, command: ExperimentCommand | RecordCommand, owner: str, workspace: str) -> None:
    """Raises Refused."""
    subject, what = state.subject(command.user), f"Experiment {command.experiment_id}"
    if why := refusal(state.access, subject, CHANGES_EXPERIMENT, workspace=workspace, owner=owner, what=what):
        raise Refused(why, "forbidden")


def _no_experiment(experiment_id: int) -> Refused:
    return Refused(f"There is no experiment {experiment_id}; `tenuto exp ls` lists those that there are.", "not_found")


def _live(state: ExperimentsState, command: ExperimentCommand) -> Live:
    live = state.live.get(command.experiment_id)
    if live is not None:
        _check_change(state, command, live.user, live.workspace)
        return live
    if command.experiment_id in state.unmanaged:
        raise Refused(
            f"Experiment {command.experiment_id} has unmanaged runs only: their programs start and end them, and there is nothing"
            " to schedule.",
            "conflict",
        )
    if 1 <= command.experiment_id <= state.submitted:
        raise Refused(f"Experiment {command.experiment_id} has already ended, so it cannot be changed.", "conflict")
    raise _no_experiment(command.experiment_id)


def _not_canceled(live: Live) -> Live:
    if live.canceled:
        raise Refused(f"Experiment {live.experiment_id} is being canceled, so it can only be killed.", "conflict")
    return live


DECISIONS = decisions(
    submit, pause, resume, cancel, change, describe, archive, unarchive, put_into_project, move, request_operations
)
