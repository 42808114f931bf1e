"""The agent's database, one SQLite file: its runs and its spool, changed together in transactions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from tenuto.kernel.private_files import private

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

BUSY_SECONDS_MAX = 5.0
"""Longest wait for the file: an agent that is being replaced may still hold it for a moment."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lanes (
    lane TEXT PRIMARY KEY,
    last INTEGER NOT NULL,       -- sequence of the newest report
    committed INTEGER NOT NULL   -- reports up to here are in the record and were dropped
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reports (
    lane TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    kind TEXT NOT NULL,
    allocation_id TEXT NOT NULL,
    trace TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (lane, sequence)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS reports_of_allocation ON reports (allocation_id, lane);
CREATE TABLE IF NOT EXISTS queued_reports (  -- not numbered yet: the lane has enough on the road
    lane TEXT NOT NULL,
    allocation_id TEXT NOT NULL,
    number INTEGER NOT NULL,     -- in the order of an allocation's reports
    kind TEXT NOT NULL,
    trace TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (lane, allocation_id, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rank_offsets (  -- of the ranks of a gang: bytes of their output that are in the spool
    allocation_id TEXT NOT NULL,
    rank INTEGER NOT NULL,
    stdout_offset INTEGER NOT NULL,
    stderr_offset INTEGER NOT NULL,
    PRIMARY KEY (allocation_id, rank)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS worker_sequences (
    allocation_id TEXT NOT NULL,
    rank INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (allocation_id, rank)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS report_tokens (  -- of allocations, as the launcher told them: what reports about them carry
    allocation_id TEXT PRIMARY KEY,
    token TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS endings (  -- of runs that are not done
    allocation_id TEXT PRIMARY KEY,
    told TEXT,                   -- by the run's worker or supervisor
    cause TEXT                   -- of its end, as it will be reported
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    allocation_id TEXT PRIMARY KEY,
    number INTEGER NOT NULL,     -- in the order of starting
    phase TEXT NOT NULL,
    token TEXT NOT NULL,
    assignment BLOB NOT NULL,
    handle TEXT,                 -- of what runs it, for the agent's runtime alone to read
    killed_for TEXT,
    outcome TEXT,
    exit_code INTEGER,
    error TEXT,
    stdout_offset INTEGER NOT NULL DEFAULT 0,
    stderr_offset INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
"""


class Database(sqlite3.Connection):
    """A connection that reports rollbacks, so that counts in memory can be made again."""

    on_rollback: Callable[[], None] | None = None


def open_database(path: Path) -> Database:
    """Opens the database. Transactions are explicit (`BEGIN` by `transaction`); a commit is on disk when it returns, also
    after a power failure, unless its transaction says otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # It holds the workers' tokens, so it is made private while empty; SQLite gives its companion files the same mode and owner.
    os.close(private(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
    for file in (path, *(path.with_name(f"{path.name}-{name}") for name in ("wal", "shm"))):
        with contextlib.suppress(FileNotFoundError):
            file.chmod(0o600)
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS_MAX, isolation_level=None, check_same_thread=False, factory=Database)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(_SCHEMA)
    return connection


def check_database(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError if the file is damaged. Takes milliseconds: it holds only waiting reports and runs, which
    are few."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


class transaction:  # noqa: N801 - reads as a statement: `with transaction(connection):`
    """A transaction, all or nothing. `power_safe=False`: no end of a process loses it, but a power failure may, together with
    all later ones. That saves an fsync where such a loss is harmless: state of workers that the power failure ends as well,
    messages that the launcher repeats, positions that a receiver still knows."""

    def __init__(self, connection: sqlite3.Connection, *, power_safe: bool = True) -> None:
        self._connection, self._power_safe = connection, power_safe

    def __enter__(self) -> sqlite3.Connection:
        if not self._power_safe:
            self._connection.execute("PRAGMA synchronous = NORMAL")  # with a write-ahead log: synced by the next full commit
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        done = False
        try:
            if kind is None:
                self._connection.execute("COMMIT")
                done = True
        finally:
            if self._connection.in_transaction:  # a full disk fails the commit itself, too
                self._connection.execute("ROLLBACK")
            if not done and isinstance(self._connection, Database) and self._connection.on_rollback is not None:
                self._connection.on_rollback()
            if not self._power_safe:
                self._connection.execute("PRAGMA synchronous = FULL")


class Disk:
    """Runs database calls one after the other in a thread of their own, so that an fsync never delays heartbeats."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="agent-disk")
        self.failed: Callable[[BaseException], None] = lambda _: None
        """Callback for each error of SQLite."""

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        # Shielded: a transaction that has begun completes even if its caller is cancelled.
        future = asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*args, **kwargs))
        future.add_done_callback(self._done)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_after_its_caller)
            raise

    def _done(self, future: asyncio.Future[T]) -> None:
        """Reports errors, also to a caller that was cancelled: a damaged file must be noticed."""
        if not future.cancelled() and isinstance(error := future.exception(), sqlite3.Error):
            self.failed(error)

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _after_its_caller(future: asyncio.Future[T]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.warning("a change of the agent's database, whose caller has left, failed: %s", str(error) or type(error).__name__)
