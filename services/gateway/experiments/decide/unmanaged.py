"""Requests about unmanaged runs, and the events that follow."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.base import from_object
from tenuto.schemas.events import EventData
from tenuto.schemas.events.unmanaged import (
    UNMANAGED_TRIALS_MAX,
    UnmanagedExperimentCreated,
    UnmanagedTrialChanged,
    UnmanagedTrialStarted,
)
from tenuto.services.gateway.experiments.commands import ChangeUnmanagedTrial, CreateUnmanagedExperiment, StartUnmanagedTrial
from tenuto.services.gateway.experiments.state import UNMANAGED_MAX, ExperimentsState


def create(state: ExperimentsState, command: CreateUnmanagedExperiment) -> Sequence[EventData]:
    known = state.unmanaged_named(command.name)
    if known is not None and command.or_existing:
        return ()
    if known is not None:
        raise name_taken(known, command.name)
    if len(state.unmanaged) >= UNMANAGED_MAX:
        raise Refused(
            f"There are {UNMANAGED_MAX} experiments of unmanaged runs, the most that this cluster keeps; log to one of them.",
            "conflict",
        )
    return [UnmanagedExperimentCreated(experiment_id=state.submitted + 1, name=command.name, user=command.user)]


def check_name(state: ExperimentsState, experiment_id: int, name: str) -> None:
    """Programs find an experiment of unmanaged runs by its name, so no two have the same. Raises Refused."""
    known = state.unmanaged_named(name) if experiment_id in state.unmanaged else None
    if known not in (None, experiment_id):
        raise name_taken(known, name)


def name_taken(known: int | None, name: str) -> Refused:
    return Refused(f"Experiment {known} has the name {name!r} already; log to it, or choose another name.", "exists")


def start(state: ExperimentsState, command: StartUnmanagedTrial) -> Sequence[EventData]:
    known = state.unmanaged.get(command.experiment_id)
    if known is None:
        there = 1 <= command.experiment_id <= state.submitted
        why = "is deleted, or scheduled by Tenuto, and takes no unmanaged runs" if there else "does not exist"
        raise Refused(
            f"Experiment {command.experiment_id} {why}; `mlflow.set_experiment(NAME)` makes one for them.",
            "conflict" if there else "not_found",
        )
    number = known.trials + 1
    if number > UNMANAGED_TRIALS_MAX:
        raise Refused(f"Experiment {command.experiment_id} has {known.trials} runs, the most of one; use another.", "conflict")
    trial_id = f"{command.experiment_id}-{number}"
    return [from_object(UnmanagedTrialStarted, command, trial_id=trial_id, trial_number=number)]


def change(state: ExperimentsState, command: ChangeUnmanagedTrial) -> Sequence[EventData]:
    """The run's maker was judged before: the state has no runs, of which there may be millions."""
    if command.experiment_id not in state.unmanaged:
        raise Refused(f"Trial {command.trial_id} is no unmanaged run.", "conflict")
    return [from_object(UnmanagedTrialChanged, command)]


DECISIONS = decisions(create, start, change)
