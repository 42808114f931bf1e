"""Requests to delete experiments, and the deletions that follow when the time to take them back is over."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentDeleted, ExperimentDeletionCanceled, ExperimentDeletionRequested
from tenuto.schemas.sentences.deletions import GraceOver
from tenuto.services.gateway.experiments.commands import CarryOutDeletion, DeleteExperiment, KeepExperiment
from tenuto.services.gateway.experiments.decide.experiments import check_known
from tenuto.services.gateway.experiments.state import ExperimentsState

NAMED_MAX = 5
"""Experiments that a refusal names of those that need this one."""


def delete(state: ExperimentsState, command: DeleteExperiment) -> Sequence[EventData]:
    """A second request changes the time only if it is earlier."""
    experiment_id = command.experiment_id
    check_known(state, command)
    _check_kept(state, experiment_id)
    if experiment_id in state.live:
        raise Refused(
            f"Experiment {experiment_id} has not ended; delete it after its end (`tenuto exp kill {experiment_id}` ends it).",
            "conflict",
        )
    if users := [key for key in sorted(state.live) if experiment_id in state.live[key].origins]:
        named = ", ".join(map(str, users[:NAMED_MAX])) + (" and others" if len(users) > NAMED_MAX else "")
        raise Refused(
            f"Experiment {experiment_id} is what experiment {named} was made from and may start from; delete it after the end of"
            f" experiment {named}.",
            "conflict",
        )
    asked, due_us = state.deletions.get(experiment_id), command.time_us + command.grace_us
    if asked is not None and asked.due_us <= due_us:
        return ()
    return [ExperimentDeletionRequested(experiment_id=experiment_id, user=command.user, due_us=due_us)]


def keep(state: ExperimentsState, command: KeepExperiment) -> Sequence[EventData]:
    check_known(state, command)
    _check_kept(state, command.experiment_id)
    known = command.experiment_id in state.deletions
    return [ExperimentDeletionCanceled(experiment_id=command.experiment_id)] if known else ()


def carry_out(state: ExperimentsState, command: CarryOutDeletion) -> Sequence[EventData]:
    asked = state.deletions.get(command.experiment_id)
    if asked is None or command.time_us < asked.due_us:
        return ()
    grace = GraceOver(user=asked.user, grace_seconds=max(0, asked.due_us - asked.asked_us) / 1e6)
    return [ExperimentDeleted(experiment_id=command.experiment_id, reason=grace.reason())]


def _check_kept(state: ExperimentsState, experiment_id: int) -> None:
    """Raises Refused."""
    if experiment_id in state.deleted:
        raise Refused(f"Experiment {experiment_id} is deleted, and cannot be brought back.", "gone")


DECISIONS = decisions(delete, keep, carry_out)
