"""Reports on their way to the record: on disk from the moment a worker is told so, until the receiver has committed them.

Each lane numbers its reports 1, 2, 3, ... under the spool's id. Where the receiver's count and ours cannot both be true (one of
the two lost its disk), a new id is drawn and what is left is numbered anew; receivers recognise repeated facts by their content.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tenuto.schemas.subjects import LANES, Lane
from tenuto.workers.agent.database import transaction

BULK_LANES: frozenset[Lane] = frozenset({"metrics", "logs"})
BULK_BYTES_MAX = 256 * 1024 * 1024
"""Metrics and log lines that wait on disk; beyond it new ones are dropped and counted, so that training goes on. Facts (the other
lanes) are never dropped: a trial makes a few hundred bytes of them per validation."""


@dataclass(frozen=True)
class SpoolReport:
    lane: Lane
    sequence: int
    kind: str
    allocation_id: str
    trace: str
    body: bytes


@dataclass(frozen=True)
class NewReport:
    lane: Lane
    kind: str
    allocation_id: str
    body: bytes
    trace: str = ""


class Spool:
    """Not thread-safe: called through one `Disk`. Methods named `*_in` belong into the caller's transaction."""

    def __init__(self, connection: sqlite3.Connection, new_id: str, bulk_bytes_max: int = BULK_BYTES_MAX) -> None:
        """`new_id` becomes the spool's id if it has none yet."""
        self._connection = connection
        self._bulk_bytes_max = bulk_bytes_max
        self.dropped = 0
        """Bulk reports dropped since the start."""
        with transaction(connection):
            connection.execute("INSERT OR IGNORE INTO meta VALUES ('spool_id', ?)", (new_id,))
            connection.executemany("INSERT OR IGNORE INTO lanes VALUES (?, 0, 0)", [(lane,) for lane in LANES])
        self.id: str = connection.execute("SELECT value FROM meta WHERE key = 'spool_id'").fetchone()[0]
        self._bulk_bytes = self._sum_bulk()
        self._last: dict[str, int] = dict(connection.execute("SELECT lane, last FROM lanes"))

    def last(self, lane: Lane) -> int:
        """Sequence of the lane's newest report. Reads memory only."""
        return self._last[lane]

    def committed(self, lane: Lane) -> int:
        return cast(int, self._connection.execute("SELECT committed FROM lanes WHERE lane = ?", (lane,)).fetchone()[0])

    def append(self, *reports: NewReport) -> None:
        with transaction(self._connection):
            for report in reports:
                self.append_in(report)

    def append_in(self, report: NewReport) -> bool:
        """False: a bulk report that was dropped."""
        if report.lane in BULK_LANES:
            if self._bulk_bytes + len(report.body) > self._bulk_bytes_max:
                self.dropped += 1
                return False
            self._bulk_bytes += len(report.body)
        (sequence,) = self._connection.execute(
            "UPDATE lanes SET last = last + 1 WHERE lane = ? RETURNING last", (report.lane,)
        ).fetchone()
        self._connection.execute(
            "INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?)",
            (report.lane, sequence, report.kind, report.allocation_id, report.trace, report.body),
        )
        self._last[report.lane] = sequence
        return True

    def append_from_worker(self, allocation_id: str, rank: int, reports: Sequence[tuple[int, NewReport]]) -> int:
        """Takes the reports that follow what this rank sent before; repeated ones and those after a gap are left out.

        Returns the rank's last sequence that is in the spool.
        """
        with transaction(self._connection):
            last = self.last_of_worker(allocation_id, rank)
            for sequence, report in reports:
                if sequence == last + 1:
                    self.append_in(report)
                    last = sequence
            self._connection.execute("INSERT OR REPLACE INTO worker_sequences VALUES (?, ?, ?)", (allocation_id, rank, last))
        return last

    def last_of_worker(self, allocation_id: str, rank: int) -> int:
        row = self._connection.execute(
            "SELECT last FROM worker_sequences WHERE allocation_id = ? AND rank = ?", (allocation_id, rank)
        ).fetchone()
        return row[0] if row else 0

    def forget_worker_in(self, allocation_id: str) -> None:
        self._connection.execute("DELETE FROM worker_sequences WHERE allocation_id = ?", (allocation_id,))

    def pending(self, lane: Lane, after: int, limit: int) -> list[SpoolReport]:
        """Reports that are not committed, with sequence > `after`, in order."""
        rows = self._connection.execute(
            "SELECT lane, sequence, kind, allocation_id, trace, body FROM reports WHERE lane = ? AND sequence > ? "
            "ORDER BY sequence LIMIT ?",
            (lane, after, limit),
        )
        return [SpoolReport(*row) for row in rows]

    def waiting(self, lane: Lane, allocation_id: str) -> int:
        """How many of an allocation's reports in this lane are not committed."""
        row = self._connection.execute(
            "SELECT count(*) FROM reports WHERE allocation_id = ? AND lane = ?", (allocation_id, lane)
        ).fetchone()
        return cast(int, row[0])

    def commit(self, lane: Lane, sequence: int, spool_id: str) -> None:
        """Drops what is in the record. An older count than the one known changes nothing, nor does one about another spool. After
        a power failure the receiver may have to say it again."""
        if spool_id != self.id or sequence > self.last(lane):
            return  # not about this spool's reports: `begin_again` is the answer, by who can ask again
        with transaction(self._connection, power_safe=False):
            if lane in BULK_LANES:
                (freed,) = self._connection.execute(
                    "SELECT coalesce(sum(length(body)), 0) FROM reports WHERE lane = ? AND sequence <= ?", (lane, sequence)
                ).fetchone()
                self._bulk_bytes -= freed
            self._connection.execute("DELETE FROM reports WHERE lane = ? AND sequence <= ?", (lane, sequence))
            self._connection.execute("UPDATE lanes SET committed = max(committed, ?) WHERE lane = ?", (sequence, lane))

    def begin_again(self, new_id: str) -> None:
        """A new spool with what is left of this one, numbered from 1."""
        with transaction(self._connection):
            self._connection.execute("UPDATE meta SET value = ? WHERE key = 'spool_id'", (new_id,))
            for lane in LANES:
                # In ascending order a report never takes a number that another one still has.
                rows = self._connection.execute(
                    "SELECT sequence FROM reports WHERE lane = ? ORDER BY sequence", (lane,)
                ).fetchall()
                self._connection.executemany(
                    "UPDATE reports SET sequence = ? WHERE lane = ? AND sequence = ?",
                    [(number, lane, sequence) for number, (sequence,) in enumerate(rows, start=1)],
                )
                self._connection.execute("UPDATE lanes SET last = ?, committed = 0 WHERE lane = ?", (len(rows), lane))
                self._last[lane] = len(rows)
        self.id = new_id

    def _sum_bulk(self) -> int:
        row = self._connection.execute(
            "SELECT coalesce(sum(length(body)), 0) FROM reports WHERE lane IN ('metrics', 'logs')"
        ).fetchone()
        return cast(int, row[0])
