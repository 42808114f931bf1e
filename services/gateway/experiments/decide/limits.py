"""Limits that are reached while experiments run: of time, at which an experiment is ended, and of what a workspace stores."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.access import WorkspaceStorageNoted
from tenuto.schemas.events.request import ExperimentCancelRequested, ExperimentTimeLimitReached
from tenuto.schemas.sentences.limits import WallTimeOver
from tenuto.services.gateway.experiments.commands import EndOverdue, NoteStorage
from tenuto.services.gateway.experiments.policies.wall_time import overdue, wall_us
from tenuto.services.gateway.experiments.state import ExperimentsState
from tenuto.services.gateway.rights.access import workspace_of


def end_overdue(state: ExperimentsState, command: EndOverdue) -> Sequence[EventData]:
    """Nothing where it ended, or got more time, meanwhile."""
    live = state.live.get(command.experiment_id)
    limit = None if live is None else overdue(state, live, command.time_us)
    if live is None or limit is None:
        return ()
    over = WallTimeOver(limit_hours=limit.hours, wall_seconds=wall_us(live, command.time_us) / 1e6, workspace=limit.workspace)
    reached = ExperimentTimeLimitReached(experiment_id=live.experiment_id, reason=over.reason())
    return [reached, ExperimentCancelRequested(experiment_id=live.experiment_id)]


def note_storage(state: ExperimentsState, command: NoteStorage) -> Sequence[EventData]:
    """Only where a limit is crossed: what is stored changes with every checkpoint."""
    workspace = workspace_of(state.access, command.workspace)
    limit = workspace.storage_bytes_max
    if (0 < limit <= command.stored_bytes) == (workspace.noted_bytes is not None):
        return ()
    return [WorkspaceStorageNoted(workspace=command.workspace, stored_bytes=command.stored_bytes, limit_bytes=limit)]


DECISIONS = decisions(end_overdue, note_storage)
