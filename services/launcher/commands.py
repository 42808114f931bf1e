"""Commands to the launcher from outside the log."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from tenuto.schemas.assignments import Heartbeat
from tenuto.schemas.reports import LauncherReport


@dataclass(frozen=True)
class RecordReport:
    """An agent's report about the workers of one allocation."""

    id: UUID
    time_us: int
    report: LauncherReport
    trace: str = ""


@dataclass(frozen=True)
class RecordHeartbeat:
    """An agent says that it is there, what it offers and what it has."""

    id: UUID
    time_us: int
    heartbeat: Heartbeat
    fresh: bool
    """No report of this agent overtook the heartbeat, so an allocation that it does not list is one that it does not have."""


@dataclass(frozen=True)
class EndRestartPauses:
    """Trials whose pause before the next start is over by `time_us` may start."""

    id: UUID
    time_us: int


@dataclass(frozen=True)
class ExpireLease:
    """Nothing was heard of an agent for longer than its lease."""

    id: UUID
    time_us: int
    agent_id: str
    reason: str
