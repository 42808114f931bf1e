"""The event log: its protocol, which PostgreSQL and the in-memory log of the tests both fulfil (tests/contract/test_eventlog.py).

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
"""Most events of one append: bounds the transaction and the memory of one call; the service loop splits larger batches."""
READ_EVENTS_MAX = 10_000
"""Most events of one read, for the same reason."""
READ_BYTES_MAX = 8 << 20
"""Most bytes of payloads in one read: a full page of usual events (400 bytes) is half of it. An event may be some megabytes
long, and thousands of these would fill their reader's memory at every start."""
SNAPSHOTS_KEPT = 2
"""Number of newest snapshots kept per consumer; the older one serves reads of a state before the newer one."""
WATCH_SECONDS_MAX = 1.0
"""Longest silence of a watcher: it gets the head at least this often, so a lost notification costs a second."""


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
class ConsumerCheckpoint:
    """Position up to which a consumer has read. `commits` counts its moves: a second instance that holds an old count is
    fenced, even if the position did not change."""

    consumer: str
    position: int = 0
    commits: int = 0


@dataclass(frozen=True)
class Append:
    """One atomic step: events are appended, the checkpoint moves, and all guards held. All or nothing."""

    events: Sequence[Event] = ()
    """Events to append, without position and version: the log assigns them. Versions count from 1 in each stream."""
    checkpoint: ConsumerCheckpoint | None = None
    """The checkpoint as the caller last knew it; it moves to `next_position`."""
    next_position: int = 0
    expected_versions: Mapping[str, int] = field(default_factory=dict)
    """Versions that streams must have before the append (0: must not exist), whether this append writes to them or not."""


@dataclass(frozen=True)
class Appended:
    events: tuple[Event, ...]
    """The events with their positions and versions."""
    checkpoint: ConsumerCheckpoint | None


@dataclass(frozen=True)
class Snapshot:
    consumer: str
    position: int
    """Position up to which inputs are folded in."""
    own_position: int
    """Position of the consumer's last own event that is folded in."""
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
    """First position whose row does not fit the chain. None: the log is intact."""


def check_append(batch: Append) -> None:
    """Refuses appends that are errors of the caller: raises ValueError."""
    if len(batch.events) > APPEND_EVENTS_MAX:
        raise ValueError(f"{len(batch.events)} events in one append; at most {APPEND_EVENTS_MAX} are allowed")
    if batch.checkpoint is not None and batch.next_position < batch.checkpoint.position:
        raise ValueError(f"the checkpoint of {batch.checkpoint.consumer} cannot move back to {batch.next_position}")


def check_read(after: int, limit: int) -> None:
    """Refuses reads that are errors of the caller: raises ValueError."""
    if after < 0 or not 1 <= limit <= READ_EVENTS_MAX:
        raise ValueError(f"cannot read {limit} events after {after}: between 1 and {READ_EVENTS_MAX} events after 0 or more")


class EventPage(list[Event]):
    """Events of one read."""

    more: bool
    """True: the page ended because it was full, by number or by bytes; read on after its last event."""

    def __init__(self, events: Iterable[Event], more: bool) -> None:
        super().__init__(events)
        self.more = more


class EventLog(Protocol):
    async def append(self, batch: Append) -> Appended:
        """Appends the batch. If several things are wrong, the first of these is raised: Fenced, VersionConflict,
        DuplicateEvent; nothing is recorded then."""
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
    ) -> EventPage:
        """Events with position > `after` (and <= `upto`), in order, at most `limit`, filtered on request. The page ends with
        the event that brings its payloads to `bytes_max`, so it exceeds that by one event at most; `more` says whether it was
        full."""
        ...

    async def find(self, event_id: UUID) -> Event | None: ...

    async def head(self) -> int:
        """Position of the last event; 0 when the log is empty."""
        ...

    async def stream_version(self, stream: str) -> int: ...

    async def checkpoint(self, consumer: str) -> ConsumerCheckpoint:
        """Checkpoint of a consumer; position 0 and commits 0 if it is new."""
        ...

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Saves a snapshot; the newest two per consumer are kept."""
        ...

    async def latest_snapshot(self, consumer: str, rule_version: int, upto: int | None = None) -> Snapshot | None: ...

    def watch(self) -> AsyncIterator[int]:
        """Yields the head's position when it moved: promptly after each append (NOTIFY), and at least once a second while
        the log can be reached, so that a lost notification costs a second and nothing else. Survives reconnects."""
        ...

    async def verify(self) -> Verified:
        """Recomputes the hash chain of the whole log, and compares its end with the positions of its readers."""
        ...

    async def hashes(self, positions: Sequence[int]) -> dict[int, bytes]:
        """Recorded hashes by position, for the positions that exist."""
        ...

    async def close(self) -> None: ...
