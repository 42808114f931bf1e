"""Ends what has reached a limit while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentCancelRequested, ExperimentTimeLimitReached
from tenuto.schemas.sentences.limits import WallTimeOver
from tenuto.services.gateway.commands import EndOverdue
from tenuto.services.gateway.policies.wall_time import overdue, wall_us
from tenuto.services.gateway.state import State


def end_overdue(state: State, command: EndOverdue) -> Sequence[EventData]:
    """Nothing where it ended, or got more time, meanwhile."""
    live = state.live.get(command.experiment_id)
    limit = None if live is None else overdue(state, live, command.time_us)
    if live is None or limit is None:
        return ()
    over = WallTimeOver(limit_hours=limit.hours, wall_seconds=wall_us(live, command.time_us) / 1e6, workspace=limit.workspace)
    reached = ExperimentTimeLimitReached(experiment_id=live.experiment_id, reason=over.reason())
    return [reached, ExperimentCancelRequested(experiment_id=live.experiment_id)]
