"""The event log: the protocol that PostgreSQL and the in-memory twin both keep (tests/contract/test_eventlog.py).

Positions are dense: 1, 2, 3, ... in commit order, so a reader that has seen position p has seen everything up to p.

Errors, all subclasses of LogError:
    LogUnavailable      the database cannot be reached; try again. Whether an append that ended so was recorded is not
                        known: read the checkpoint again, or append the same ids again and count DuplicateEvent as done
    Fenced              another instance of this consumer has moved the checkpoint; this one must stop
    VersionConflict     a stream is not at the version that the caller expected
    DuplicateEvent      an event id is already recorded; nothing was appended
    NotWritable         the log refuses changes for another reason (privileges, disk full)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from tenuto.schemas.envelope import Event

APPEND_EVENTS_MAX = 5_000
"""Events per append: bounds the transaction and the memory of one call; the service loop splits larger batches."""
READ_EVENTS_MAX = 10_000
"""Events per read, for the same reason."""
READ_BYTES_MAX = 8 << 20
"""Bytes of payloads per read: a full page of usual events (400 bytes) is half of it. An event may be some megabytes long, and
thousands of such ones would fill the memory of whoever reads them, at each start anew."""
SNAPSHOTS_KEPT = 2
"""Per consumer, the last ones saved: the older one serves when a position before the newer one is asked for."""
WATCH_SECONDS_MAX = 1.0
"""A watcher hears the head at least this often: a lost notification costs a second."""


class LogError(Exception):
    pass


class LogUnavailable(LogError):
    pass


class Fenced(LogError):
    pass


class VersionConflict(LogError):
    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(f"stream {stream} is at version {actual}, not {expected}")
        self.stream, self.expected, self.actual = stream, expected, actual


class DuplicateEvent(LogError):
    def __init__(self, event_id: UUID | None) -> None:
        super().__init__(f"event {event_id} is already recorded")
        self.event_id = event_id


class NotWritable(LogError):
    pass


@dataclass(frozen=True)
class Checkpoint:
    """How far a consumer is. `commits` counts its moves: a second instance that holds an old count is fenced, even where the
    position did not change."""

    consumer: str
    position: int = 0
    commits: int = 0


@dataclass(frozen=True)
class Append:
    """One atomic step: events are appended, the checkpoint moves, and all guards held. All or nothing."""

    events: Sequence[Event] = ()
    """position and version are ignored; the log assigns them. Versions count from 1 in each stream."""
    checkpoint: Checkpoint | None = None
    """The checkpoint as the caller last knew it; it moves to `next_position`."""
    next_position: int = 0
    expected_versions: Mapping[str, int] = field(default_factory=dict)
    """Streams that must be at this version before the append (0: must not exist), written by this append or not."""


@dataclass(frozen=True)
class Appended:
    events: tuple[Event, ...]
    """With their positions and versions."""
    checkpoint: Checkpoint | None


@dataclass(frozen=True)
class Snapshot:
    consumer: str
    position: int
    """Inputs up to here are folded in."""
    own_position: int
    """Position of the last event of the consumer's own that is folded in."""
    rule_version: int
    state: bytes


@dataclass(frozen=True)
class Tampered:
    position: int
    reason: str


@dataclass(frozen=True)
class Verified:
    events: int
    head: int
    head_hash: bytes
    tampered: Tampered | None
    """The first position whose row does not fit the chain; None: the log is intact."""


def check_append(batch: Append) -> None:
    """Refuse what no caller may ask for: raises ValueError."""
    if len(batch.events) > APPEND_EVENTS_MAX:
        raise ValueError(f"{len(batch.events)} events in one append; at most {APPEND_EVENTS_MAX} are allowed")
    if batch.checkpoint is not None and batch.next_position < batch.checkpoint.position:
        raise ValueError(f"the checkpoint of {batch.checkpoint.consumer} cannot move back to {batch.next_position}")


def check_read(after: int, limit: int) -> None:
    """Refuse what no caller may ask for: raises ValueError."""
    if after < 0 or not 1 <= limit <= READ_EVENTS_MAX:
        raise ValueError(f"cannot read {limit} events after {after}: between 1 and {READ_EVENTS_MAX} events after 0 or more")


class Page(list[Event]):
    """Events that were read at once."""

    more: bool
    """The page ended because it was full, by number or by bytes: read on after its last event."""

    def __init__(self, events: Iterable[Event], more: bool) -> None:
        super().__init__(events)
        self.more = more


class EventLog(Protocol):
    async def append(self, batch: Append) -> Appended:
        """When several things are wrong the first of these is raised: Fenced, VersionConflict, DuplicateEvent. Nothing is
        recorded then."""
        ...

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
    ) -> Page:
        """Events with position > `after` (and <= `upto`), in order, at most `limit`, filtered if asked. The page ends with the
        event that brings its payloads to `bytes_max`, so it is longer than that by one event at most; `more` says whether it
        was full."""
        ...

    async def find(self, event_id: UUID) -> Event | None: ...

    async def head(self) -> int:
        """Position of the last event; 0 when the log is empty."""
        ...

    async def stream_version(self, stream: str) -> int: ...

    async def checkpoint(self, consumer: str) -> Checkpoint:
        """Where the consumer is; position 0 and commits 0 when it is new."""
        ...

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keeps the newest two per consumer."""
        ...

    async def latest_snapshot(self, consumer: str, rule_version: int, upto: int | None = None) -> Snapshot | None: ...

    def watch(self) -> AsyncIterator[int]:
        """Yields the head's position when it moved: promptly after each append (NOTIFY), and at least once a second while
        the log can be reached, so that a lost notification costs a second and nothing else. Survives reconnects."""
        ...

    async def verify(self) -> Verified:
        """Recomputes the hash chain of the whole log, and compares its end with what its readers know."""
        ...

    async def hashes(self, positions: Sequence[int]) -> dict[int, bytes]:
        """The recorded hashes of events by position, of those that are there."""
        ...

    async def close(self) -> None: ...
