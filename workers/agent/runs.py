"""Runs of this agent: one per allocation that it started, on disk until no assignment can name it again."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from tenuto.schemas.assignments import Action, Assignment
from tenuto.schemas.events.run import Cause, WorkersOutcome
from tenuto.workers.agent.database import transaction
from tenuto.workers.agent.runtimes.runtime import Handle
from tenuto.workers.agent.spool import NewReport, Spool
from tenuto.workers.endings import Ending

Phase = Literal["starting", "running", "ended", "reported", "done"]
"""starting: stored, and no process of the run exists yet. running: its handle is known. ended: none of its processes is left.
reported: its exit is in the spool. done: its exit is in the record; kept so that an old assignment cannot start it again."""
DONE_RUNS_KEPT_MAX = 1_000
"""Most done runs kept. An assignment that names an ended allocation is at most a few seconds old; a thousand runs take longer."""


@dataclass(frozen=True)
class RunRecord:
    allocation_id: str
    number: int
    phase: Phase
    token: str
    assignment: Assignment
    handle: Handle | None = None
    """Handle of what the runtime has started. None: nothing yet."""
    killed_for: Action | None = None
    """Directive for which the agent killed the workers. None if it did not."""
    outcome: WorkersOutcome | None = None
    exit_code: int | None = None
    error: str | None = None
    stdout_offset: int = 0
    stderr_offset: int = 0
    """Bytes of the run's output (standard output, standard error) that are in the spool."""
    told: Ending | None = None
    """Ending that its worker announced; None if it announced none."""
    cause: Cause | None = None

    @property
    def holds_slots(self) -> bool:
        return self.phase in ("starting", "running")


_COLUMNS = (
    "allocation_id, number, phase, token, assignment, handle, killed_for, outcome, exit_code, error, stdout_offset, "
    "stderr_offset, told, cause"
)


class Runs:
    """Runs on disk. Not thread-safe: called through one `Disk`. Most changes concern workers, which a power failure ends
    anyway; only the end of a run, once reported, and its output must survive one."""

    def __init__(self, connection: sqlite3.Connection, spool: Spool) -> None:
        self._connection, self._spool = connection, spool

    def all(self) -> list[RunRecord]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM runs LEFT JOIN endings USING (allocation_id) ORDER BY number"
        ).fetchall()
        return [_run(row) for row in rows]

    def cluster(self) -> str:
        """Cluster whose runs these are; empty if not known yet."""
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'cluster'").fetchone()
        return "" if row is None else cast(str, row[0])

    def join(self, cluster: str, *, forget: bool) -> None:
        """Notes the cluster. `forget`: removes the runs, which are all done and another cluster's."""
        with transaction(self._connection):
            if forget:
                self._connection.execute("DELETE FROM runs WHERE phase = 'done'")
                self._connection.execute("DELETE FROM report_tokens")
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('cluster', ?)", (cluster,))

    def add(self, assignment: Assignment, token: str, starting: NewReport | None) -> RunRecord:
        with transaction(self._connection, power_safe=False):
            (number,) = self._connection.execute("SELECT coalesce(max(number), 0) + 1 FROM runs").fetchone()
            self._connection.execute(
                "INSERT INTO runs (allocation_id, number, phase, token, assignment) VALUES (?, ?, 'starting', ?, ?)",
                (assignment.allocation_id, number, token, assignment.to_json()),
            )
            if starting is not None:
                self._spool.append_in(starting)
        return RunRecord(assignment.allocation_id, number, "starting", token, assignment)

    def note_handle(self, allocation_id: str, handle: Handle, started: NewReport) -> None:
        with transaction(self._connection, power_safe=False):
            self._spool.append_in(started)
            self._connection.execute(
                "UPDATE runs SET phase = 'running', handle = ? WHERE allocation_id = ?", (handle, allocation_id)
            )

    def note_assignment(self, assignment: Assignment) -> None:
        with transaction(self._connection, power_safe=False):
            self._connection.execute(
                "UPDATE runs SET assignment = ? WHERE allocation_id = ?", (assignment.to_json(), assignment.allocation_id)
            )

    def note_kill(self, allocation_id: str, action: Action) -> None:
        with transaction(self._connection, power_safe=False):
            self._connection.execute(
                "UPDATE runs SET killed_for = ? WHERE allocation_id = ? AND killed_for IS NULL", (action, allocation_id)
            )

    def note_told(self, allocation_id: str, ending: Ending) -> None:
        """Notes the ending that the worker announces; the first one counts."""
        with transaction(self._connection, power_safe=False):
            self._connection.execute("INSERT OR IGNORE INTO endings VALUES (?, ?, NULL)", (allocation_id, ending))

    def note_end(
        self, allocation_id: str, outcome: WorkersOutcome, exit_code: int | None, error: str | None, cause: Cause | None
    ) -> None:
        with transaction(self._connection, power_safe=False):
            if cause is not None:
                self._connection.execute(
                    "INSERT INTO endings VALUES (?, NULL, ?) ON CONFLICT (allocation_id) DO UPDATE SET cause = excluded.cause",
                    (allocation_id, cause),
                )
            self._connection.execute(
                "UPDATE runs SET phase = 'ended', outcome = ?, exit_code = ?, error = ? WHERE allocation_id = ?",
                (outcome, exit_code, error, allocation_id),
            )

    def note_logs(self, allocation_id: str, reports: list[NewReport], stdout_offset: int, stderr_offset: int) -> None:
        """Moves lines into the spool and the offsets with them, in one transaction: no line is lost or doubled."""
        with transaction(self._connection):
            for report in reports:
                self._spool.append_in(report)
            self._connection.execute(
                "UPDATE runs SET stdout_offset = ?, stderr_offset = ? WHERE allocation_id = ?",
                (stdout_offset, stderr_offset, allocation_id),
            )

    def note_rank_logs(self, allocation_id: str, reports: list[NewReport], offsets: Mapping[int, tuple[int, int]]) -> None:
        """Like `note_logs` for the ranks of a gang. `offsets`: (stdout, stderr) by rank."""
        with transaction(self._connection):
            for report in reports:
                self._spool.append_in(report)
            self._connection.executemany(
                "INSERT OR REPLACE INTO rank_offsets VALUES (?, ?, ?, ?)",
                [(allocation_id, rank, *both) for rank, both in offsets.items()],
            )

    def rank_offsets(self, allocation_id: str) -> dict[int, tuple[int, int]]:
        rows = self._connection.execute(
            "SELECT rank, stdout_offset, stderr_offset FROM rank_offsets WHERE allocation_id = ?", (allocation_id,)
        )
        return {rank: (out, err) for rank, out, err in rows}

    def note_reported(self, allocation_id: str, exited: NewReport) -> bool:
        """Stores the exit report; False, with nothing stored, if the tracker has not committed all reports of the run."""
        if self._spool.waiting("tracker", allocation_id):
            return False
        with transaction(self._connection):
            self._spool.append_in(exited)
            self._connection.execute("UPDATE runs SET phase = 'reported' WHERE allocation_id = ?", (allocation_id,))
        return True

    def note_done(self, allocation_id: str) -> list[str]:
        """Marks a run as done. Returns the allocations that were removed because they are too old."""
        with transaction(self._connection, power_safe=False):
            self._connection.execute("UPDATE runs SET phase = 'done' WHERE allocation_id = ?", (allocation_id,))
            self._spool.forget_worker_in(allocation_id)
            for table in ("rank_offsets", "endings"):
                self._connection.execute(f"DELETE FROM {table} WHERE allocation_id = ?", (allocation_id,))
            old = self._connection.execute(
                "DELETE FROM runs WHERE allocation_id IN "
                "(SELECT allocation_id FROM runs WHERE phase = 'done' ORDER BY number DESC LIMIT -1 OFFSET ?) "
                "RETURNING allocation_id",
                (DONE_RUNS_KEPT_MAX,),
            ).fetchall()
        return [row[0] for row in old]


def _run(row: tuple[object, ...]) -> RunRecord:
    values = list(row)
    values[4] = Assignment.from_json(cast(bytes, values[4]))
    return RunRecord(*values)  # type: ignore[arg-type]
