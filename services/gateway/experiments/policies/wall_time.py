"""Time that experiments have run, and how long they may: of their configuration and their workspace. Pure.

An experiment runs while at least one of its trials holds its slots, from the grant to the release, both by the record. So time
in the queue and in a pause does not count, and two trials at once count once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tenuto.kernel.folding import Envelope
from tenuto.schemas.events.pool import AllocationGranted, AllocationReleased
from tenuto.services.gateway.experiments.state import ExperimentsState, Live
from tenuto.services.gateway.rights.access import Access, workspace_of

HOUR_US = 3_600_000_000


class WallTimeLimit(NamedTuple):
    hours: float
    workspace: str = ""
    """Workspace whose limit it is. Empty: the configuration says it."""


def granted(live: Live, _: AllocationGranted, envelope: Envelope) -> Live:
    since_us = live.wall_since_us if live.allocations else envelope.time_us
    return replace(live, allocations=live.allocations + 1, wall_since_us=since_us)


def released(live: Live, _: AllocationReleased, envelope: Envelope) -> Live:
    left = max(0, live.allocations - 1)
    ran_us = 0 if left else max(0, envelope.time_us - live.wall_since_us) if live.allocations else 0
    return replace(live, allocations=left, wall_us=live.wall_us + ran_us)


def wall_us(live: Live, now_us: int) -> int:
    """Time that it has run so far, in microseconds."""
    return live.wall_us + (max(0, now_us - live.wall_since_us) if live.allocations else 0)


def limit_of(access: Access, live: Live) -> WallTimeLimit | None:
    """The limit that it reaches first. A workspace's counts as it was at the submission, and a longer one that was set since:
    so an admin may give more time to what runs, and takes none away. None: it may run as long as it likes."""
    now_hours = workspace_of(access, live.workspace).wall_hours_max
    hours = max(live.workspace_hours_max, now_hours) if live.workspace_hours_max and now_hours else 0.0
    found = [WallTimeLimit(hours, live.workspace)] if hours else []
    if live.max_wall_hours:
        found.insert(0, WallTimeLimit(live.max_wall_hours))
    return min(found, key=lambda limit: limit.hours, default=None)


def overdue(state: ExperimentsState, live: Live, now_us: int) -> WallTimeLimit | None:
    """The limit that it has reached. None: it has not, or is being canceled already."""
    limit = None if live.canceled else limit_of(state.access, live)
    return limit if limit is not None and wall_us(live, now_us) >= limit.hours * HOUR_US else None


def all_overdue(state: ExperimentsState, now_us: int) -> Iterator[int]:
    """Ids of the experiments that have reached their limit, in order."""
    for experiment_id in sorted(state.live):
        live = state.live[experiment_id]
        limited = live.max_wall_hours or live.workspace_hours_max
        if limited and live.allocations and overdue(state, live, now_us) is not None:
            yield experiment_id
