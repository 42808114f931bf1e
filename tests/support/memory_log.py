"""The event log in memory: for tests and simulations. Held to the same contract suite as the one on PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from tenuto.kernel.chain import GENESIS, event_hash
from tenuto.kernel.eventlog import (
    READ_BYTES_MAX,
    SNAPSHOTS_KEPT,
    WATCH_SECONDS_MAX,
    Append,
    Appended,
    ConsumerCheckpoint,
    DuplicateEvent,
    EventPage,
    Fenced,
    Snapshot,
    Verified,
    VersionConflict,
    check_append,
    check_read,
)
from tenuto.schemas.envelope import Event


class MemoryEventLog:
    """For one asyncio loop. `append` never waits, so no lock is needed."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._ids: dict[UUID, int] = {}
        self._versions: dict[str, int] = {}
        self._checkpoints: dict[str, ConsumerCheckpoint] = {}
        self._snapshots: dict[str, list[Snapshot]] = {}
        self._watchers: set[asyncio.Event] = set()

    async def append(self, batch: Append) -> Appended:
        check_append(batch)
        self._check_checkpoint(batch.checkpoint)
        for stream, expected in batch.expected_versions.items():
            if (actual := self._versions.get(stream, 0)) != expected:
                raise VersionConflict(stream, expected, actual)
        fresh: set[UUID] = set()
        for event in batch.events:
            if event.id in self._ids or event.id in fresh:
                raise DuplicateEvent(event.id)
            fresh.add(event.id)
        recorded = tuple(self._record(event) for event in batch.events)
        checkpoint = None
        if batch.checkpoint is not None:
            known = batch.checkpoint
            checkpoint = ConsumerCheckpoint(known.consumer, batch.next_position, known.commits + 1)
            self._checkpoints[known.consumer] = checkpoint
        if recorded:
            for wake in self._watchers:
                wake.set()
        return Appended(recorded, checkpoint)

    def _check_checkpoint(self, known: ConsumerCheckpoint | None) -> None:
        if known is not None and self._checkpoint(known.consumer) != known:
            raise Fenced(f"the checkpoint of {known.consumer} was moved by another instance")

    def _record(self, event: Event) -> Event:
        position = len(self._events) + 1
        version = self._versions.get(event.stream, 0) + 1
        recorded = event.recorded(position, version)
        self._events.append(recorded)
        self._ids[event.id] = position
        self._versions[event.stream] = version
        return recorded

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
        end = len(self._events) if upto is None else max(upto, 0)
        found: list[Event] = []
        bytes_read = 0
        for event in itertools.islice(self._events, after, max(after, end)):
            if (
                (types is None or event.type in types)
                and (correlation_id is None or event.correlation_id == correlation_id)
                and (stream is None or event.stream == stream)
            ):
                found.append(event)
                bytes_read += len(event.payload)
                if len(found) == limit or bytes_read >= bytes_max:
                    return EventPage(found, more=True)
        return EventPage(found, more=False)

    async def find(self, event_id: UUID) -> Event | None:
        position = self._ids.get(event_id)
        return None if position is None else self._events[position - 1]

    async def head(self) -> int:
        return len(self._events)

    async def stream_version(self, stream: str) -> int:
        return self._versions.get(stream, 0)

    async def checkpoint(self, consumer: str) -> ConsumerCheckpoint:
        return self._checkpoint(consumer)

    def _checkpoint(self, consumer: str) -> ConsumerCheckpoint:
        return self._checkpoints.get(consumer, ConsumerCheckpoint(consumer))

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        key = (snapshot.rule_version, snapshot.position)
        others = [s for s in self._snapshots.get(snapshot.consumer, []) if (s.rule_version, s.position) != key]
        self._snapshots[snapshot.consumer] = [*others, snapshot][-SNAPSHOTS_KEPT:]

    async def latest_snapshot(self, consumer: str, rule_version: int, upto: int | None = None) -> Snapshot | None:
        fitting = [
            snapshot
            for snapshot in self._snapshots.get(consumer, [])
            if snapshot.rule_version == rule_version and (upto is None or max(snapshot.position, snapshot.own_position) <= upto)
        ]
        return max(fitting, key=lambda snapshot: snapshot.position, default=None)

    async def watch(self) -> AsyncIterator[int]:
        wake = asyncio.Event()
        self._watchers.add(wake)
        try:
            while True:
                wake.clear()
                yield len(self._events)
                try:
                    async with asyncio.timeout(WATCH_SECONDS_MAX):
                        await wake.wait()
                except TimeoutError:
                    pass
        finally:
            self._watchers.discard(wake)

    async def verify(self) -> Verified:
        chain = GENESIS
        for event in self._events:
            chain = event_hash(chain, event)
        return Verified(len(self._events), len(self._events), chain, None)

    async def hashes(self, positions: Sequence[int]) -> dict[int, bytes]:
        chain, found = GENESIS, {}
        for event in self._events:
            chain = event_hash(chain, event)
            found[event.position] = chain
        return {position: found[position] for position in positions if position in found}

    async def close(self) -> None:
        pass
