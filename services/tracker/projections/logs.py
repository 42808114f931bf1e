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
WITH stored AS (
    INSERT INTO trial_logs (experiment_id, trial_number, allocation_id, agent_id, rank, stream, time_us, text, report_id,
        report_index)
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::int[], $6::text[], $7::bigint[], $8::text[],
        $9::uuid[], $10::int[])
    ON CONFLICT (report_id, report_index) DO NOTHING
    RETURNING experiment_id, trial_number, octet_length(text) + $11 AS bytes)
INSERT INTO trial_log_sizes SELECT experiment_id, trial_number, sum(bytes) FROM stored GROUP BY experiment_id, trial_number
ON CONFLICT (experiment_id, trial_number) DO UPDATE SET bytes = trial_log_sizes.bytes + excluded.bytes"""
_SIZES = """
SELECT experiment_id, trial_number, bytes FROM trial_log_sizes
JOIN unnest($1::bigint[], $2::int[]) AS asked (experiment_id, trial_number) USING (experiment_id, trial_number)"""
_FULL = "UPDATE trial_log_sizes SET bytes = $3 WHERE experiment_id = $1 AND trial_number = $2"

LINE_CHARACTERS_MAX = 32_768
"""A longer line is cut: a progress bar without line ends must not fill the table."""
LOG_BYTES_MAX = 1 << 30
"""Most bytes that are kept of one trial's lines, over all its starts, agents, ranks and streams. What a start may print is
bounded by its agent, but not the number of starts: a trial that is preempted every hour would fill the disk that all share."""
LINE_BYTES = 64
"""Bytes that a line counts beside its text: a million empty ones take room, too."""
FULL = (
    f"The log of this trial ends here: its starts have printed {LOG_BYTES_MAX >> 20} MiB in all, the most that is kept. "
    "The trial goes on; print less, or write to a file of your own."
)
_Row = tuple[int, int, str, str, int, str, int, str, UUID, int]
_Trial = tuple[int, int]


@dataclass(frozen=True)
class Logs:
    report_id: UUID
    agent_id: str
    report: LogsReport


async def write_logs(pool: asyncpg.Pool, reports: Sequence[Logs]) -> None:
    """Stores the lines in one transaction, in the order given. A trial that has printed LOG_BYTES_MAX gets one more line, which
    says so."""
    rows: list[_Row] = [
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
    if not rows:
        return
    trials = sorted({row[:2] for row in rows})
    sizes = dict.fromkeys(trials, 0) | {
        (row["experiment_id"], row["trial_number"]): row["bytes"] for row in await pool.fetch(_SIZES, *zip(*trials, strict=True))
    }
    new = dict(sizes)
    for row in rows:
        new[row[:2]] += _bytes(row)
    if all(size < LOG_BYTES_MAX for size in new.values()):
        await pool.execute(_LOGS, *_columns(rows), LINE_BYTES)
        return
    # What was stored before is neither counted again nor taken for the line with which the log ends.
    found = await pool.fetch("SELECT DISTINCT report_id FROM trial_logs WHERE report_id = ANY ($1)", [row[8] for row in rows])
    known = {row["report_id"] for row in found}
    kept, ended = _within([row for row in rows if row[8] not in known], sizes)
    if not kept:
        return
    async with pool.acquire() as db, db.transaction():
        await db.execute(_LOGS, *_columns(kept), LINE_BYTES)
        for trial in ended:
            await db.execute(_FULL, *trial, LOG_BYTES_MAX)


def _within(rows: Sequence[_Row], sizes: dict[_Trial, int]) -> tuple[list[_Row], list[_Trial]]:
    """Rows that are kept, and the trials whose log ends with one of them. `sizes` is LOG_BYTES_MAX for one that has ended."""
    kept: list[_Row] = []
    ended = []
    for row in rows:
        trial = row[:2]
        if sizes[trial] >= LOG_BYTES_MAX:
            continue
        if (size := sizes[trial] + _bytes(row)) < LOG_BYTES_MAX:
            kept.append(row)
            sizes[trial] = size
            continue
        kept.append((*row[:5], "tenuto", row[6], FULL, *row[8:]))
        sizes[trial] = LOG_BYTES_MAX
        ended.append(trial)
    return kept, ended


def _bytes(row: _Row) -> int:
    return len(row[7].encode()) + LINE_BYTES


def _columns(rows: Sequence[_Row]) -> list[tuple[object, ...]]:
    return list(zip(*rows, strict=True))
