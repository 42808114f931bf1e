"""Writes log lines. A batch is one statement; what comes twice is stored once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from tenuto.schemas.ids import experiment_of
from tenuto.schemas.reports import LogsReport
from tenuto.services.tracker.projections import trial_number

_LOGS = """
INSERT INTO trial_logs (experiment_id, trial_number, allocation_id, agent_id, rank, stream, time_us, text, report_id,
    report_index)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::int[], $6::text[], $7::bigint[], $8::text[], $9::uuid[],
    $10::int[])
ON CONFLICT (report_id, report_index) DO NOTHING"""

LINE_CHARACTERS_MAX = 32_768
"""A longer line is cut: a progress bar without line ends must not fill the table."""


@dataclass(frozen=True)
class Logs:
    report_id: UUID
    agent_id: str
    report: LogsReport


async def write_logs(pool: asyncpg.Pool, reports: Sequence[Logs]) -> None:
    """Writes log lines in one transaction, in the order given."""
    rows = [
        (
            experiment_of(item.report.trial_id),
            trial_number(item.report.trial_id),
            item.report.allocation_id,
            item.agent_id,
            line.rank,
            line.stream,
            line.time_us,
            line.text[:LINE_CHARACTERS_MAX].replace("\0", "\ufffd"),  # PostgreSQL's text cannot hold a zero
            item.report_id,
            index,
        )
        for item in reports
        for index, line in enumerate(item.report.lines)
    ]
    if rows:
        await pool.execute(_LOGS, *list(zip(*rows, strict=True)))
