"""Contract of event logs, checked on both implementations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import accumulate
from typing import Any
from uuid import UUID

import pytest

from tenuto.kernel.eventlog import (
    APPEND_EVENTS_MAX,
    READ_BYTES_MAX,
    READ_EVENTS_MAX,
    Append,
    ConsumerCheckpoint,
    DuplicateEvent,
    EventLog,
    Fenced,
    Snapshot,
    VersionConflict,
)
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import LogFeed
from tenuto.schemas.envelope import Event
from tenuto.schemas.ids import name_id
from tests.support.memory_log import MemoryEventLog
from tests.support.waiting import SECONDS_MAX


def event(number: int, stream: str = "trial/1-1", **changes: Any) -> Event:
    fields: dict[str, Any] = {
        "id": name_id("contract", str(number)),
        "stream": stream,
        "type": "TrialProgressed",
        "schema_version": 1,
        "time_us": 1_700_000_000_000_000 + number,
        "payload": b'{"number":%d}' % number,
        "actor": "tracker/1",
        "correlation_id": "1",
        "causation_id": name_id("cause", str(number)),
        "seen_position": number,
        "trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    return Event(**{**fields, **changes})


def events(first: int, last: int, stream: str = "trial/1-1", **changes: Any) -> list[Event]:
    return [event(number, stream, **changes) for number in range(first, last + 1)]


@pytest.fixture(params=["memory", "postgres"])
def log_url(request: pytest.FixtureRequest) -> str:
    """Empty for memory, so that those tests need no server."""
    return "" if request.param == "memory" else request.getfixturevalue("database").url


@pytest.fixture
async def log(log_url: str) -> AsyncIterator[EventLog]:
    if not log_url:
        yield MemoryEventLog()
        return
    postgres = await PostgresEventLog.connect(log_url)
    yield postgres
    await postgres.close()


async def test_a_new_log_is_empty(log: EventLog) -> None:
    assert await log.head() == 0
    assert await log.read(0) == []
    assert await log.stream_version("trial/1-1") == 0
    assert await log.checkpoint("searcher") == ConsumerCheckpoint("searcher", 0, 0)
    assert await log.latest_snapshot("searcher", 1) is None
    assert await log.find(event(1).id) is None
    assert (await log.verify()).tampered is None


async def test_what_was_appended_is_read_field_for_field(log: EventLog) -> None:
    given = [
        event(1),
        event(2, causation_id=None, correlation_id="", trace="", seen_position=0),
        event(3, actor="user:Zoë", payload='{"text":"tenüto – held"}'.encode()),
        event(4, payload=bytes(range(256))),
        event(5, time_us=-(2**63), seen_position=2**63 - 1, schema_version=2**31 - 1),
        event(6, stream="agent/node/with/slashes and spaces"),
    ]
    appended = await log.append(Append(given))
    assert [(e.position, e.version) for e in appended.events] == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 1)]
    assert appended.checkpoint is None
    assert await log.read(0) == list(appended.events)
    assert [e.recorded(0, 0) for e in await log.read(0)] == given


async def test_positions_are_dense_and_versions_count_in_each_stream(log: EventLog) -> None:
    first = await log.append(Append([event(1, "a/1"), event(2, "b/1"), event(3, "a/1")]))
    second = await log.append(Append([event(4, "b/1"), event(5, "c/1"), event(6, "a/1"), event(7, "b/1")]))
    assert [(e.position, e.stream, e.version) for e in [*first.events, *second.events]] == [
        (1, "a/1", 1), (2, "b/1", 1), (3, "a/1", 2), (4, "b/1", 2), (5, "c/1", 1), (6, "a/1", 3), (7, "b/1", 3),
    ]  # fmt: skip
    assert [await log.stream_version(stream) for stream in ("a/1", "b/1", "c/1", "d/1")] == [3, 3, 1, 0]
    assert await log.head() == 7


async def test_find_returns_the_recorded_event(log: EventLog) -> None:
    appended = await log.append(Append(events(1, 3)))
    assert await log.find(event(2).id) == appended.events[1]
    assert await log.find(UUID(int=1)) is None


async def test_read_pages(log: EventLog) -> None:
    await log.append(Append(events(1, 10)))
    assert [e.position for e in await log.read(0, 3)] == [1, 2, 3]
    assert [e.position for e in await log.read(3, 3)] == [4, 5, 6]
    assert [e.position for e in await log.read(3, 30, upto=5)] == [4, 5]
    assert await log.read(10) == []
    assert await log.read(99) == []
    assert await log.read(5, upto=5) == []
    assert await log.read(5, upto=2) == []


async def test_a_page_ends_by_bytes_too(log: EventLog) -> None:
    """Long events are read a few at a time, and a follower of the log still gets all of them."""
    recorded = [event(n, payload=b'{"number":%d,"x":"%s"}' % (n, b"x" * (n % 5 << 20))) for n in range(1, 26)]
    for first in range(0, 25, 5):
        await log.append(Append(recorded[first : first + 5]))
    found: list[Event] = []
    while True:
        page = await log.read(found[-1].position if found else 0, READ_EVENTS_MAX)
        assert sum(len(item.payload) for item in page[:-1]) < READ_BYTES_MAX
        found += page
        assert page.more == (len(found) < 25)
        if not page.more:
            break
    assert [item.recorded(0, 0) for item in found] == recorded
    assert [item.position for item in await log.read(3, 5, bytes_max=1)] == [4]
    assert [item.position for item in await log.read(4, 5, bytes_max=1)] == [5]
    assert [item.position for item in await log.read(4, 5, bytes_max=40)] == [5, 6]
    assert not (await log.read(24, 2, bytes_max=1 << 20)).more
    assert (await log.read(4, 1)).more
    for bytes_max in (1, 30, 1 << 20, (1 << 20) + 100, 3 << 20, 9 << 20, 64 << 20):
        for limit in (2, 7, 25):
            sizes = accumulate(len(item.payload) for item in recorded[2 : 2 + limit])
            whole = sum(size < bytes_max for size in sizes)
            page = await log.read(2, limit, bytes_max=bytes_max)
            assert [item.position for item in page] == list(range(3, 3 + min(whole + 1, limit, 23)))
            assert [item.recorded(0, 0) for item in page] == recorded[2 : 2 + len(page)]
            assert page.more == (whole < min(limit, 23) or limit < 24)
    followed: list[Event] = []
    async with asyncio.timeout(SECONDS_MAX):
        async for batch in LogFeed(log).follow(0, 100):
            followed += batch
            if len(followed) == 25:
                break
    assert followed == found


async def test_read_filters(log: EventLog) -> None:
    await log.append(
        Append(
            [
                event(1, "a/1", type="X", correlation_id="1"),
                event(2, "b/1", type="Y", correlation_id="2"),
                event(3, "a/1", type="Y", correlation_id="1"),
                event(4, "b/1", type="Z", correlation_id=""),
                event(5, "a/1", type="X", correlation_id="2"),
                event(6, "a/1", type="Z", correlation_id="1"),
            ]
        )
    )

    async def positions(after: int = 0, limit: int = 500, **filters: Any) -> list[int]:
        return [e.position for e in await log.read(after, limit, **filters)]

    assert await positions(types=["X", "Z"]) == [1, 4, 5, 6]
    assert await positions(types=[]) == []
    assert await positions(correlation_id="2") == [2, 5]
    assert await positions(correlation_id="") == [4]
    assert await positions(stream="a/1") == [1, 3, 5, 6]
    assert await positions(3, stream="a/1") == [5, 6]  # after an event of the stream
    assert await positions(4, stream="a/1") == [5, 6]  # after an event of another one
    assert await positions(0, 2, stream="a/1", upto=5) == [1, 3]
    assert await positions(1, stream="a/1", types=["X", "Y"], correlation_id="1", upto=6) == [3]


async def test_limits_are_refused_not_exceeded(log: EventLog) -> None:
    with pytest.raises(ValueError, match="at most"):
        await log.append(Append([event(1)] * (APPEND_EVENTS_MAX + 1)))
    for after, limit in ((-1, 1), (0, 0), (0, READ_EVENTS_MAX + 1)):
        with pytest.raises(ValueError, match="cannot read"):
            await log.read(after, limit)


async def test_a_duplicate_is_named_and_nothing_is_appended(log: EventLog) -> None:
    await log.append(Append(events(1, 3)))
    with pytest.raises(DuplicateEvent) as refused:
        await log.append(Append([event(4), event(3), event(2)]))
    assert refused.value.event_id == event(3).id
    with pytest.raises(DuplicateEvent) as refused:
        await log.append(Append([event(5), event(6), event(5, "b/1")]))
    assert refused.value.event_id == event(5).id
    assert await log.head() == 3
    assert await log.stream_version("trial/1-1") == 3
    assert [e.position for e in (await log.append(Append([event(4)]))).events] == [4]


async def test_expected_versions(log: EventLog) -> None:
    await log.append(Append([event(1, "a/1"), event(2, "a/1")]))
    with pytest.raises(VersionConflict) as refused:
        await log.append(Append([event(3, "b/1")], expected_versions={"a/1": 1}))
    assert (refused.value.stream, refused.value.expected, refused.value.actual) == ("a/1", 1, 2)
    with pytest.raises(VersionConflict) as refused:
        await log.append(Append([event(3, "b 1/x y")], expected_versions={"a/1": 2, "b 1/x y": 4}))
    assert (refused.value.stream, refused.value.expected, refused.value.actual) == ("b 1/x y", 4, 0)
    assert await log.head() == 2
    await log.append(Append([event(3, "b/1")], expected_versions={"a/1": 2, "b/1": 0}))
    assert await log.head() == 3
    with pytest.raises(VersionConflict):
        await log.append(Append([], expected_versions={"b/1": 0}))


async def test_the_checkpoint_moves_with_the_events(log: EventLog) -> None:
    new = await log.checkpoint("searcher")
    first = await log.append(Append(events(1, 2), new, 7))
    assert first.checkpoint == ConsumerCheckpoint("searcher", 7, 1)
    assert first.checkpoint == await log.checkpoint("searcher")
    second = await log.append(Append([], first.checkpoint, 9))
    assert second.events == ()
    assert second.checkpoint == ConsumerCheckpoint("searcher", 9, 2) == await log.checkpoint("searcher")
    assert await log.checkpoint("scheduler") == ConsumerCheckpoint("scheduler", 0, 0)
    with pytest.raises(ValueError, match="move back"):
        await log.append(Append([], second.checkpoint, 8))


async def test_a_second_instance_is_fenced(log: EventLog) -> None:
    new = await log.checkpoint("searcher")
    first = (await log.append(Append([event(1)], new, 0))).checkpoint
    assert first is not None
    for old in (new, *(ConsumerCheckpoint(*moved) for moved in (("searcher", 5, 1), ("searcher", 0, 2), ("scheduler", 3, 0)))):
        with pytest.raises(Fenced):
            await log.append(Append([event(2)], old, 6))
    assert await log.head() == 1
    assert await log.checkpoint("searcher") == first
    # Where the position did not change, the count still fences.
    await log.append(Append([event(2)], first, 0))
    with pytest.raises(Fenced):
        await log.append(Append([event(3)], first, 0))


async def test_a_refused_append_leaves_the_checkpoint(log: EventLog) -> None:
    known = (await log.append(Append([event(1)], await log.checkpoint("searcher"), 4))).checkpoint
    with pytest.raises(DuplicateEvent):
        await log.append(Append([event(1)], known, 5))
    with pytest.raises(VersionConflict):
        await log.append(Append([event(2)], known, 5, {"trial/1-1": 7}))
    assert await log.checkpoint("searcher") == known


async def test_the_first_of_several_errors_is_raised(log: EventLog) -> None:
    known = (await log.append(Append([event(1)], await log.checkpoint("searcher"), 1))).checkpoint
    with pytest.raises(Fenced):
        await log.append(Append([event(1)], ConsumerCheckpoint("searcher"), 1, {"trial/1-1": 0}))
    with pytest.raises(VersionConflict):
        await log.append(Append([event(1)], known, 1, {"trial/1-1": 0}))


async def test_concurrent_appends_stay_dense_and_whole(log: EventLog) -> None:
    batches = [[event(100 * n + i, f"trial/1-{n % 3}") for i in range(n % 4 + 1)] for n in range(40)]
    appended = await asyncio.gather(*(log.append(Append(batch)) for batch in batches))
    for batch, result in zip(batches, appended, strict=True):
        first = result.events[0].position
        assert [e.position for e in result.events] == list(range(first, first + len(batch)))
    recorded = await log.read(0, 1000)
    assert [e.position for e in recorded] == list(range(1, sum(map(len, batches)) + 1))
    versions: dict[str, int] = {}
    for e in recorded:
        assert e.version == versions.get(e.stream, 0) + 1
        versions[e.stream] = e.version


async def test_only_one_of_two_instances_wins(log: EventLog) -> None:
    new = await log.checkpoint("searcher")
    results = await asyncio.gather(*(log.append(Append([event(n)], new, 3)) for n in range(1, 9)), return_exceptions=True)
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert all(isinstance(result, Fenced) for result in results if isinstance(result, BaseException))
    assert await log.head() == 1


async def test_snapshots_keep_the_last_two(log: EventLog) -> None:
    for position in (10, 20, 30):
        await log.save_snapshot(Snapshot("searcher", position, position + 2, 1, b"state %d" % position))
    await log.save_snapshot(Snapshot("scheduler", 5, 5, 1, b"other"))
    assert await log.latest_snapshot("searcher", 1) == Snapshot("searcher", 30, 32, 1, b"state 30")
    assert await log.latest_snapshot("searcher", 1, upto=31) == Snapshot("searcher", 20, 22, 1, b"state 20")
    assert await log.latest_snapshot("searcher", 1, upto=21) is None
    assert await log.latest_snapshot("searcher", 2) is None
    await log.save_snapshot(Snapshot("searcher", 30, 33, 1, b"again"))
    assert await log.latest_snapshot("searcher", 1) == Snapshot("searcher", 30, 33, 1, b"again")
    assert await log.latest_snapshot("searcher", 1, upto=25) == Snapshot("searcher", 20, 22, 1, b"state 20")


async def test_a_snapshot_of_new_rules_is_kept_though_its_position_is_lower(log: EventLog) -> None:
    for position in (10, 20):
        await log.save_snapshot(Snapshot("searcher", position, position, 1, b"old rules"))
    await log.save_snapshot(Snapshot("searcher", 5, 5, 2, b"new rules"))
    assert await log.latest_snapshot("searcher", 2) == Snapshot("searcher", 5, 5, 2, b"new rules")


async def test_watch_says_where_the_head_is_and_when_it_moves(log: EventLog) -> None:
    heads = log.watch()
    assert await anext(heads) == 0
    await log.append(Append(events(1, 3)))
    async for head in heads:
        if head == 3:
            break
    await log.append(Append(events(4, 5)))
    async for head in heads:
        if head == 5:
            break


async def test_watch_repeats_itself_when_nothing_happens(log: EventLog) -> None:
    heads = log.watch()
    assert [await anext(heads) for _ in range(3)] == [0, 0, 0]


async def test_two_watchers_both_hear(log: EventLog) -> None:
    one, two = log.watch(), log.watch()
    assert (await anext(one), await anext(two)) == (0, 0)
    await log.append(Append(events(1, 2)))

    async def wait_for_two(heads: AsyncIterator[int]) -> None:
        async for head in heads:
            if head == 2:
                return

    await asyncio.gather(wait_for_two(one), wait_for_two(two))


async def test_both_logs_compute_the_same_chain(database: Any) -> None:
    memory, postgres = MemoryEventLog(), await PostgresEventLog.connect(database.url)
    given = [*events(1, 20), event(21, causation_id=None, correlation_id="", trace=""), event(22, actor="user:Zoë", payload=b"")]
    for batch in (given[:1], given[1:15], given[15:]):
        await memory.append(Append(batch))
        await postgres.append(Append(batch))
    verified = await postgres.verify()
    assert verified == await memory.verify()
    assert (verified.events, verified.head, verified.tampered) == (22, 22, None)
    await postgres.close()
