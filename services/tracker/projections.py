"""Writes bulk data, training metrics and log lines, into tables. A batch is one statement; what comes twice is stored once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from tenuto.schemas.ids import experiment_of
from tenuto.schemas.reports import LogsReport, MetricsReport

# The newest measurement of a batch stands, whichever arrives last: a late report of an earlier run does not overwrite it.
_METRICS = """
INSERT INTO trial_metrics AS m (experiment_id, trial_number, batches, allocation_id, time_us, metrics)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::bigint[], $6::jsonb[])
ON CONFLICT (experiment_id, trial_number, batches) DO UPDATE
SET allocation_id = excluded.allocation_id, time_us = excluded.time_us, metrics = excluded.metrics
WHERE m.time_us <= excluded.time_us"""
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


def trial_number(trial_id: str) -> int:
    return int(trial_id.partition("-")[2])


async def write_metrics(pool: asyncpg.Pool, reports: Sequence[MetricsReport]) -> None:
    """In one transaction. Points of one trial at the same number of batches: the newest one."""
    newest: dict[tuple[int, int, int], tuple[str, int, str]] = {}
    for report in reports:
        key = experiment_of(report.trial_id), trial_number(report.trial_id)
        for point in report.points:
            known = newest.get((*key, point.batches))
            if known is None or known[1] <= point.time_us:
                metrics = json.dumps(json.loads(point.to_json())["metrics"])  # NaN as a string
                newest[(*key, point.batches)] = (report.allocation_id, point.time_us, metrics)
    if newest:
        columns = list(zip(*((*key, *row) for key, row in sorted(newest.items())), strict=True))
        await pool.execute(_METRICS, *columns)


async def write_logs(pool: asyncpg.Pool, reports: Sequence[Logs]) -> None:
    """In one transaction, in the order given."""
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
