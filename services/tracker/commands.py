"""Commands to the tracker from outside the log."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from tenuto.schemas.reports import TrackerReport


@dataclass(frozen=True)
class RecordTrialReport:
    """Put a worker's report on record, if its allocation is current."""

    id: UUID
    time_us: int
    report: TrackerReport
    trace: str = ""
