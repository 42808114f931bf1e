"""The event log on PostgreSQL. One append is one call of one database function (sql/0001_event_log.sql): one round trip, one
commit, one fsync, so batches are the unit of speed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from tenuto.kernel import log_witnesses
from tenuto.kernel.chain import GENESIS, event_hash
from tenuto.kernel.database_errors import DATABASE_AWAY
from tenuto.kernel.eventlog import (
    READ_BYTES_MAX,
    SNAPSHOTS_KEPT,
    Append,
    Appended,
    ConsumerCheckpoint,
    DuplicateEvent,
    EventPage,
    Fenced,
    LogError,
    LogUnavailable,
    NotWritable,
    Snapshot,
    Tampered,
    Verified,
    VersionConflict,
    check_append,
    check_read,
)
from tenuto.kernel.eventlog_watch import HeadWatcher
from tenuto.kernel.eventlog_writer import Writer
from tenuto.schemas.envelope import Event

CONNECT_SECONDS_MAX = 5.0
"""Time after which a server that does not answer counts as unreachable; callers try again."""
COMMAND_SECONDS_MAX = 30.0
"""Longest statement: the largest append takes a tenth of a second. After this time the link counts as dead."""
CONNECTIONS_MAX = 4
"""Most connections of one process for reading; appends and notifications have one more each. Many processes share a server's
default of 100."""
CLOSE_SECONDS_MAX = 5.0
VERIFY_PAGE_EVENTS = 1_000
"""Events verified in one page. Hashing a page takes some milliseconds, in which the process does nothing else."""

_FENCED, _CONFLICT = "TN001", "TN002"
_FIELDS = ("position", "id", "stream", "version", "type", "schema_version", "time_us", "actor", "correlation_id", "causation_id",
           "seen_position", "trace", "payload")  # fmt: skip
_COLUMNS = ", ".join(_FIELDS)  # columns are named like the fields of Event
_VERIFY_PAGE = f"SELECT {_COLUMNS}, hash FROM events WHERE position > $1 AND position <= $2 ORDER BY position"
_ENDS = """
SELECT position AS head, hash, (SELECT min(position) FROM events) AS first, (SELECT max(position) FROM events) AS last
FROM log_head"""
# So many payloads of $3 bytes fit into one read. Larger ones, which are few, are read by themselves once their number is known:
# PostgreSQL knows the length of a payload without reading it, and a running sum over all rows cost a fifth of a read.
_PAGE = f"""
SELECT {_COLUMNS.replace("payload", "CASE WHEN octet_length(payload) <= $3 THEN payload END AS payload")},
CASE WHEN octet_length(payload) > $3 THEN octet_length(payload) END AS bytes_left_out
FROM events WHERE {{}} ORDER BY position LIMIT $2"""
_PAYLOADS = "SELECT position, payload FROM events WHERE position = ANY($1::bigint[])"
_REPLACE_SNAPSHOT = "DELETE FROM snapshots WHERE consumer = $1 AND rule_version = $2 AND position = $3"
_SAVE_SNAPSHOT = """
INSERT INTO snapshots (consumer, position, own_position, rule_version, state) VALUES ($1, $2, $3, $4, $5)"""
_DROP_SNAPSHOTS = """
DELETE FROM snapshots WHERE consumer = $1
AND number NOT IN (SELECT number FROM snapshots WHERE consumer = $1 ORDER BY number DESC LIMIT $2)"""
_LATEST_SNAPSHOT = """
SELECT consumer, position, own_position, rule_version, state FROM snapshots
WHERE consumer = $1 AND rule_version = $2 AND ($3::bigint IS NULL OR greatest(position, own_position) <= $3)
ORDER BY position DESC LIMIT 1"""


class PostgresEventLog:
    def __init__(self, pool: asyncpg.Pool, connect: Callable[[], Awaitable[asyncpg.Connection]]) -> None:
        """Internal: use `connect`."""
        self.pool = pool
        """Connection pool, for reading views beside the log. Its connections keep their session settings: change none."""
        self._watcher = HeadWatcher(connect)
        self._writer = Writer(connect, COMMAND_SECONDS_MAX)

    @classmethod
    async def connect(cls, url: str) -> PostgresEventLog:
        """Opens the log. Raises LogUnavailable if the server cannot be reached, and LogError with one sentence if it refuses
        the connection or has no Tenuto schema."""
        pool = await asyncpg.create_pool(
            url,
            min_size=0,  # asyncpg restores a minimum in the background, with a traceback for each try while the server is down
            max_size=CONNECTIONS_MAX,
            timeout=CONNECT_SECONDS_MAX,
            command_timeout=COMMAND_SECONDS_MAX,
            server_settings=_SESSION,
            reset=_keep_session,
        )
        log = cls(pool, lambda: asyncpg.connect(url, timeout=CONNECT_SECONDS_MAX, server_settings=_SESSION))
        try:
            await log.head()
        except BaseException:
            await log.close()
            raise
        return log

    async def append(self, batch: Append) -> Appended:
        check_append(batch)
        events, known = batch.events, batch.checkpoint
        async with translated(self.pool, batch):
            row = await self._writer.append(
                [event.id for event in events],
                [event.stream for event in events],
                [event.type for event in events],
                [event.schema_version for event in events],
                [event.time_us for event in events],
                [event.actor for event in events],
                [event.correlation_id for event in events],
                [event.causation_id for event in events],
                [event.seen_position for event in events],
                [event.trace for event in events],
                [event.payload for event in events],
                list(batch.expected_versions),
                list(batch.expected_versions.values()),
                *((known.consumer, known.position, known.commits, batch.next_position) if known else (None, 0, 0, 0)),
            )
        recorded: tuple[Event, ...] = ()
        if events:
            recorded = tuple(
                event.recorded(position, version)
                for position, (event, version) in enumerate(zip(events, row["versions"], strict=True), row["first_position"])
            )
        moved = ConsumerCheckpoint(known.consumer, batch.next_position, known.commits + 1) if known else None
        return Appended(recorded, moved)

    async def read(
        self,
        after: int,
        limit: int = 500,
        *,
        upto: int | None = None,
        types: Sequence[str] | None = None,
        correlation_id: str | None = None,
        stream: str | None = None,
        bytes_max: int = READ_BYTES_MAX,
    ) -> EventPage:
        check_read(after, limit)
        where = ["position > $1"]
        values: list[Any] = [after, limit, bytes_max // limit]

        def also(condition: str, value: object) -> None:
            values.append(value)
            where.append(condition.replace("?", f"${len(values)}"))

        if upto is not None:
            also("position <= ?", upto)
        if types is not None:
            also("type = ANY(?::text[])", list(types))
        if correlation_id is not None:
            also("correlation_id = ?", correlation_id)
        if stream is not None:
            # A page usually starts after an event of the same stream: its version is the way into the stream's index.
            also("stream = ?", stream)
            where.append(f"version > coalesce((SELECT version FROM events WHERE position = $1 AND stream = ${len(values)}), 0)")
        async with translated(self.pool):
            rows = await self.pool.fetch(_PAGE.format(" AND ".join(where)), *values)
            if not any(row[-1] for row in rows):
                return EventPage(map(_event, rows), len(rows) == limit)
            kept, full = _within(rows, bytes_max)
            large = [row["position"] for row in kept if row[-1]]
            payloads = dict(await self.pool.fetch(_PAYLOADS, large))
        return EventPage((_event(row, payloads.get(row["position"])) for row in kept), full or len(rows) == limit)

    async def find(self, event_id: UUID) -> Event | None:
        async with translated(self.pool):
            row = await self.pool.fetchrow(f"SELECT {_COLUMNS} FROM events WHERE id = $1", event_id)
        return None if row is None else _event(row)

    async def head(self) -> int:
        async with translated(self.pool):
            return int(await self.pool.fetchval("SELECT position FROM log_head"))

    async def stream_version(self, stream: str) -> int:
        async with translated(self.pool):
            return await self.pool.fetchval("SELECT version FROM streams WHERE stream = $1", stream) or 0

    async def checkpoint(self, consumer: str) -> ConsumerCheckpoint:
        async with translated(self.pool):
            row = await self.pool.fetchrow("SELECT position, commits FROM checkpoints WHERE consumer = $1", consumer)
        return ConsumerCheckpoint(consumer) if row is None else ConsumerCheckpoint(consumer, row["position"], row["commits"])

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        async with translated(self.pool), self.pool.acquire() as connection, connection.transaction():
            await connection.execute(_REPLACE_SNAPSHOT, snapshot.consumer, snapshot.rule_version, snapshot.position)
            await connection.execute(
                _SAVE_SNAPSHOT,
                snapshot.consumer,
                snapshot.position,
                snapshot.own_position,
                snapshot.rule_version,
                snapshot.state,
            )
            await connection.execute(_DROP_SNAPSHOTS, snapshot.consumer, SNAPSHOTS_KEPT)

    async def latest_snapshot(self, consumer: str, rule_version: int, upto: int | None = None) -> Snapshot | None:
        async with translated(self.pool):
            row = await self.pool.fetchrow(_LATEST_SNAPSHOT, consumer, rule_version, upto)
        return None if row is None else Snapshot(**row)

    def watch(self) -> AsyncIterator[int]:
        return self._watcher.watch()

    async def verify(self) -> Verified:
        """Verifies the whole log as it is now, in pages. Each page is a statement of its own: recorded rows never change, and
        a long transaction would keep every old version of the head's row, which all appends would then have to pass."""
        async with translated(self.pool):
            ends = await self.pool.fetchrow(_ENDS)
        head, head_hash = ends["head"], bytes(ends["hash"])
        if ends["first"] is not None and ends["first"] < 1:
            return Verified(0, head, head_hash, Tampered(ends["first"], "an event was added before the first one"))
        position, chain, tampered = 0, GENESIS, None
        while position < head and tampered is None:
            async with translated(self.pool):
                rows = await self.pool.fetch(_VERIFY_PAGE, position, min(head, position + VERIFY_PAGE_EVENTS))
            position, chain, tampered = _verify_page(rows, position, chain)
        if tampered is None and chain != head_hash:
            tampered = Tampered(position, "the last event does not fit the head of the log")
        elif tampered is None and (ends["last"] or 0) > head:
            tampered = Tampered(head + 1, "an event was added behind the head of the log")
        if tampered is None:
            async with translated(self.pool):
                tampered = await log_witnesses.in_database(self.pool)
        return Verified(position, head, head_hash, tampered)

    async def hashes(self, positions: Sequence[int]) -> dict[int, bytes]:
        async with translated(self.pool):
            rows = await self.pool.fetch("SELECT position, hash FROM events WHERE position = ANY($1::bigint[])", list(positions))
        return {row["position"]: bytes(row["hash"]) for row in rows}

    async def close(self) -> None:
        await self._watcher.close()
        self._writer.terminate()
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self.pool.close()
        except TimeoutError:
            self.pool.terminate()


_SESSION = {"application_name": "tenuto", "jit": "off"}  # compiling costs more than any of these short statements


async def _keep_session(_connection: asyncpg.Connection) -> None:
    """Replaces asyncpg's own reset, which costs a round trip per statement; no statement here leaves session state behind."""


def _event(row: Any, payload: bytes | None = None) -> Event:
    # Bypasses the frozen constructor, which sets the fields one by one and is five times slower.
    event = object.__new__(Event)
    to = event.__dict__
    (
        to["position"],
        to["id"],
        to["stream"],
        to["version"],
        to["type"],
        to["schema_version"],
        to["time_us"],
        to["actor"],
        to["correlation_id"],
        to["causation_id"],
        to["seen_position"],
        to["trace"],
        recorded,
        *_,
    ) = row
    to["payload"] = recorded if payload is None else payload
    return event


def _within(rows: Sequence[Any], bytes_max: int) -> tuple[Sequence[Any], bool]:
    """(rows up to the one that brings their payloads to `bytes_max`, whether there is such a one)."""
    size = 0
    for count, row in enumerate(rows, start=1):
        size += row[-1] or len(row["payload"])
        if size >= bytes_max:
            return rows[:count], True
    return rows, False


def _verify_page(rows: Sequence[Any], position: int, chain: bytes) -> tuple[int, bytes, Tampered | None]:
    """Verifies the page after `position`. A page without rows misses the next event."""
    for row in rows:
        if row["position"] != position + 1:
            break
        computed = event_hash(chain, _event(row))
        position += 1
        if computed != row["hash"]:
            return position, chain, Tampered(position, "the event, or the hash of the one before it, was changed")
        chain = computed
    else:
        if rows:
            return position, chain, None
    return position, chain, Tampered(position + 1, "the event is missing")


@contextlib.asynccontextmanager
async def translated(pool: asyncpg.Pool, batch: Append | None = None) -> AsyncIterator[None]:
    """Translates asyncpg's errors to those of the protocol. Also for readers of views over the log's pool."""
    try:
        yield
    except (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError) as error:
        if isinstance(error, ValueError):  # the driver's way to say that a value cannot be sent
            raise LogError(f"PostgreSQL cannot store this: {error}") from error
        raise _unavailable(error) from error
    except asyncpg.InternalClientError as error:
        # The server is closing this connection and has not finished. Others may be like it, so none is used again.
        await pool.expire_connections()
        raise _unavailable(error) from error
    except asyncpg.PostgresError as error:
        raise _protocol_error(error, batch) from error


def _unavailable(error: BaseException) -> LogUnavailable:
    return LogUnavailable(f"PostgreSQL cannot be reached: {str(error) or type(error).__name__}")


def _protocol_error(error: Any, batch: Append | None) -> LogError:
    code, detail = error.sqlstate or "", error.detail or ""
    if code == _FENCED:
        return Fenced(str(error))
    if code == _CONFLICT and batch is not None:
        actual, _, stream = detail.partition(" ")
        return VersionConflict(stream, batch.expected_versions[stream], int(actual))
    if code == "23505" and error.constraint_name == "events_id_unique":
        # Key (id)=(6e0f6f4c-...) already exists.
        found = detail.partition("=(")[2].partition(")")[0]
        return DuplicateEvent(UUID(found) if found else None)
    if code == "42P01":
        return LogError("the database has no Tenuto schema: run the migrations (tenuto.kernel.migrations) as its owner.")
    if code in ("42501", "25006", "53100"):  # privileges, read-only, disk full
        return NotWritable(str(error))
    if isinstance(error, DATABASE_AWAY):  # stopping, crashed, starting, too many connections, out of memory, its disk fails
        return LogUnavailable(f"PostgreSQL cannot be used now: {error}")
    return LogError(f"PostgreSQL refused: {error} ({code})")
