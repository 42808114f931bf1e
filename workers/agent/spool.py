"""The spool: reports on their way to the record. A report is on disk before its worker gets an answer, and until the receiver has
committed it.

Each lane numbers its reports 1, 2, 3, ... under the spool's id. If the receiver's count and ours cannot both be true (one of the
two lost its disk), a new id is drawn and the remaining reports are numbered anew; receivers recognise repeated facts by their
content.

A report is numbered only when it may be sent soon. Until then it is in its allocation's queue, and the allocations take turns in
getting numbers: so one that reports without end delays no other by more than the reports in flight. Facts of such an allocation
get their numbers in a lane of their own (`overflow.py`), behind which the others do not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tenuto.schemas.subjects import LANES, Lane
from tenuto.workers.agent.database import Database, transaction
from tenuto.workers.agent.fair_turns import fair_shares, interleaved
from tenuto.workers.agent.overflow import room_in

NUMBERED_AHEAD_FIRST = 100
"""Reports numbered ahead until the lane's publisher has set its window."""
FACT_LANES: tuple[Lane, Lane] = ("tracker", "overflow")
"""Lanes of the facts of trials: a report that is given for the first one may get its number in the second."""
BULK_LANES: frozenset[Lane] = frozenset({"metrics", "logs"})
BULK_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of metrics and log lines that wait on disk; beyond it new ones are dropped and counted, so that training goes on.
Facts (the other lanes) are never dropped: a trial makes a few hundred bytes of them per validation."""


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
    """Not thread-safe: called through one `Disk`. Methods named `*_in` belong in the caller's transaction."""

    def __init__(self, connection: Database, new_id: str, bulk_bytes_max: int = BULK_BYTES_MAX) -> None:
        """`new_id`: id of the spool if it has none yet."""
        self._connection = connection
        self._bulk_bytes_max = bulk_bytes_max
        self.dropped = 0
        """Number of bulk reports dropped since the start."""
        with transaction(connection):
            connection.execute("INSERT OR IGNORE INTO meta VALUES ('spool_id', ?)", (new_id,))
            connection.executemany("INSERT OR IGNORE INTO lanes VALUES (?, 0, 0)", [(lane,) for lane in LANES])
        self.id: str = connection.execute("SELECT value FROM meta WHERE key = 'spool_id'").fetchone()[0]
        self._last_served: dict[str, str] = {}
        """Allocation that had the last turn, by lane."""
        self._count()
        self._room_until = {lane: committed + NUMBERED_AHEAD_FIRST for lane, committed in self._committed.items()}
        connection.on_rollback = self._count

    def _count(self) -> None:
        """Counts anew what is on disk, at the start and after a rollback of a transaction that was already counted."""
        rows = self._connection.execute("SELECT lane, last, committed FROM lanes").fetchall()
        self._last: dict[str, int] = {lane: last for lane, last, _ in rows}
        self._committed: dict[str, int] = {lane: committed for lane, _, committed in rows}
        self._numbers = self._max_number()
        self._queued: dict[str, dict[str, int]] = {lane: {} for lane in LANES}
        for lane, allocation_id, count in self._connection.execute(
            "SELECT lane, allocation_id, count(*) FROM queued_reports GROUP BY lane, allocation_id"
        ):
            self._queued[lane][allocation_id] = count
        self._queued_reports: dict[str, int] = {lane: sum(queued.values()) for lane, queued in self._queued.items()}
        self._numbered: dict[str, dict[str, int]] = {lane: {} for lane in FACT_LANES}
        for lane in FACT_LANES:
            counts = self._connection.execute(
                "SELECT allocation_id, count(*) FROM reports WHERE lane = ? GROUP BY allocation_id", (lane,)
            ).fetchall()
            self._numbered[lane].update(counts)
        self._bulk_bytes = self._sum_bulk()

    def last(self, lane: Lane) -> int:
        """Sequence number of the lane's newest numbered report. Reads memory only."""
        return self._last[lane]

    def queued(self, lane: Lane) -> int:
        """Number of reports that may be numbered in this lane now. Reads memory only."""
        return sum(self._next_in(lane).values())

    def _next_in(self, lane: Lane) -> dict[str, int]:
        """Queued reports that may be numbered in this lane now, by allocation."""
        if lane not in FACT_LANES:
            return self._queued[lane]
        tracker, overflow = (self._numbered[name] for name in FACT_LANES)
        # A copy, made in one step: the publisher asks in another thread than the one that changes it.
        queued = self._queued[FACT_LANES[0]].copy()
        room = {
            owner: room_in("tracker" if lane == "tracker" else "overflow", tracker.get(owner, 0), overflow.get(owner, 0), count)
            for owner, count in queued.items()
        }
        return {owner: count for owner, count in room.items() if count}

    def set_room(self, lane: Lane, until: int) -> None:
        """Sets the last sequence number up to which reports are numbered."""
        self._room_until[lane] = until

    def queued_of(self, lane: Lane, allocation_id: str) -> int:
        """Number of reports of one allocation that are not numbered yet. Reads memory only."""
        return self._queued[lane].get(allocation_id, 0)

    def backlog(self) -> dict[str, int]:
        """Number of uncommitted reports by lane; lanes without any are absent. Reads memory only."""
        waiting: dict[str, int] = {lane: self._last[lane] - self._committed[lane] + self._queued_reports[lane] for lane in LANES}
        return {lane: count for lane, count in waiting.items() if count > 0}

    def committed(self, lane: Lane) -> int:
        return cast(int, self._connection.execute("SELECT committed FROM lanes WHERE lane = ?", (lane,)).fetchone()[0])

    def append(self, *reports: NewReport) -> None:
        with transaction(self._connection):
            for report in reports:
                self.append_in(report)

    def append_in(self, report: NewReport) -> bool:
        """Adds a report; False if it is a bulk report that was dropped."""
        if report.lane in BULK_LANES:
            if self._bulk_bytes + len(report.body) > self._bulk_bytes_max:
                self.dropped += 1
                return False
            self._bulk_bytes += len(report.body)
        if self._must_queue(report):
            self._numbers += 1
            self._connection.execute(
                "INSERT INTO queued_reports VALUES (?, ?, ?, ?, ?, ?)",
                (report.lane, report.allocation_id, self._numbers, report.kind, report.trace, report.body),
            )
            queued = self._queued[report.lane]
            queued[report.allocation_id] = queued.get(report.allocation_id, 0) + 1
            self._queued_reports[report.lane] += 1
        else:
            self._number_in(report, report.lane)
        return True

    def _must_queue(self, report: NewReport) -> bool:
        """True if a new report waits for its number: where there is no room, and behind those that wait for the same room."""
        lane, owner = report.lane, report.allocation_id
        if self._last[lane] >= self._room_until[lane] or self._queued[lane].get(owner) or self._next_in(lane):
            return True
        tracker, overflow = (self._numbered[name].get(owner, 0) for name in FACT_LANES)
        return lane == FACT_LANES[0] and not room_in("tracker", tracker, overflow, 1)

    def _number_in(self, report: NewReport, lane: Lane) -> None:
        (sequence,) = self._connection.execute(
            "UPDATE lanes SET last = last + 1 WHERE lane = ? RETURNING last", (lane,)
        ).fetchone()
        self._connection.execute(
            "INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?)",
            (lane, sequence, report.kind, report.allocation_id, report.trace, report.body),
        )
        self._last[lane] = sequence
        if lane in FACT_LANES:
            numbered = self._numbered[lane]
            numbered[report.allocation_id] = numbered.get(report.allocation_id, 0) + 1

    def number_some(self, lane: Lane, limit: int) -> None:
        """Numbers queued reports, the allocations in turns. This is on disk before anything is sent: a number that a power
        failure undid would be given to another report."""
        shares = fair_shares(self._next_in(lane), limit, self._last_served.get(lane, ""))
        if not shares:
            return
        given: Lane = FACT_LANES[0] if lane in FACT_LANES else lane
        queued = self._queued[given]
        with transaction(self._connection):
            taken: list[tuple[str, list[tuple[int, NewReport]]]] = []
            for allocation_id, share in shares.items():
                rows = self._connection.execute(
                    "SELECT number, kind, trace, body FROM queued_reports WHERE lane = ? AND allocation_id = ? "
                    "ORDER BY number LIMIT ?",
                    (given, allocation_id, share),
                ).fetchall()
                reports = [(number, NewReport(given, kind, allocation_id, body, trace)) for number, kind, trace, body in rows]
                taken.append((allocation_id, reports))
            for _, report in interleaved([reports for _, reports in taken]):
                self._number_in(report, lane)
            self._connection.executemany(
                "DELETE FROM queued_reports WHERE lane = ? AND allocation_id = ? AND number <= ?",
                [(given, allocation_id, reports[-1][0]) for allocation_id, reports in taken],
            )
        for allocation_id, reports in taken:
            self._last_served[lane] = allocation_id
            queued[allocation_id] -= len(reports)
            if not queued[allocation_id]:
                del queued[allocation_id]
        self._queued_reports[given] -= sum(len(reports) for _, reports in taken)

    def append_from_worker(self, allocation_id: str, rank: int, reports: Sequence[tuple[int, NewReport]]) -> int:
        """Takes the reports that follow those that this rank sent before; repeated ones and those after a gap are left out.

        Returns the rank's last sequence number in the spool.
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
        """Uncommitted reports with a sequence number above `after`, in order."""
        rows = self._connection.execute(
            "SELECT lane, sequence, kind, allocation_id, trace, body FROM reports WHERE lane = ? AND sequence > ? "
            "ORDER BY sequence LIMIT ?",
            (lane, after, limit),
        )
        return [SpoolReport(*row) for row in rows]

    def waiting(self, lane: Lane, allocation_id: str) -> int:
        """Number of an allocation's uncommitted reports in this lane; of facts, in both of their lanes."""
        other = FACT_LANES[1] if lane == FACT_LANES[0] else lane
        row = self._connection.execute(
            "SELECT (SELECT count(*) FROM reports WHERE allocation_id = ?1 AND lane IN (?2, ?3)) + "
            "(SELECT count(*) FROM queued_reports WHERE allocation_id = ?1 AND lane = ?2)",
            (allocation_id, lane, other),
        ).fetchone()
        return cast(int, row[0])

    def commit(self, lane: Lane, sequence: int, spool_id: str) -> None:
        """Drops committed reports. A count older than the known one, or about another spool, changes nothing. After a power
        failure the receiver may have to repeat it."""
        if spool_id != self.id or sequence > self.last(lane):
            return  # about other reports: the publisher, which can ask again, calls `begin_again`
        with transaction(self._connection, power_safe=False):
            if lane in BULK_LANES:
                (freed,) = self._connection.execute(
                    "SELECT coalesce(sum(length(body)), 0) FROM reports WHERE lane = ? AND sequence <= ?", (lane, sequence)
                ).fetchone()
                self._bulk_bytes -= freed
            left = self._left_in(lane, sequence)
            self._connection.execute("DELETE FROM reports WHERE lane = ? AND sequence <= ?", (lane, sequence))
            self._connection.execute("UPDATE lanes SET committed = max(committed, ?) WHERE lane = ?", (sequence, lane))
        self._committed[lane] = max(self._committed[lane], sequence)
        if lane in FACT_LANES:
            self._numbered[lane] = left

    def _left_in(self, lane: Lane, sequence: int) -> dict[str, int]:
        """Numbered facts of each allocation behind this one; none in other lanes, which need no count."""
        if lane not in FACT_LANES:
            return {}
        counted = "SELECT allocation_id, count(*) FROM reports WHERE lane = ? AND sequence > ? GROUP BY allocation_id"
        return dict(self._connection.execute(counted, (lane, sequence)).fetchall())

    def begin_again(self, new_id: str) -> None:
        """Gives the spool a new id, and numbers its remaining reports from 1."""
        with transaction(self._connection):
            self._connection.execute("UPDATE meta SET value = ? WHERE key = 'spool_id'", (new_id,))
            for lane in LANES:
                # In ascending order, no report gets a number that another one still has.
                rows = self._connection.execute(
                    "SELECT sequence FROM reports WHERE lane = ? ORDER BY sequence", (lane,)
                ).fetchall()
                self._connection.executemany(
                    "UPDATE reports SET sequence = ? WHERE lane = ? AND sequence = ?",
                    [(number, lane, sequence) for number, (sequence,) in enumerate(rows, start=1)],
                )
                self._connection.execute("UPDATE lanes SET last = ?, committed = 0 WHERE lane = ?", (len(rows), lane))
                self._last[lane], self._committed[lane] = len(rows), 0
                self._room_until[lane] = NUMBERED_AHEAD_FIRST
        self.id = new_id

    def _max_number(self) -> int:
        return cast(int, self._connection.execute("SELECT coalesce(max(number), 0) FROM queued_reports").fetchone()[0])

    def _sum_bulk(self) -> int:
        counted = "SELECT coalesce(sum(length(body)), 0) FROM {} WHERE lane IN ('metrics', 'logs')"
        return sum(
            cast(int, self._connection.execute(counted.format(table)).fetchone()[0]) for table in ("reports", "queued_reports")
        )
