"""Group commit keeps each caller's all-or-nothing, on both logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tenuto.kernel.eventlog import Append, Appended, Checkpoint, DuplicateEvent, EventLog, LogUnavailable, VersionConflict
from tenuto.kernel.eventlog_memory import MemoryEventLog
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.group_commit import GroupCommit
from tenuto.schemas.envelope import Event
from tenuto.schemas.ids import name_id


def event(number: int, stream: str = "trial/1-1") -> Event:
    return Event(name_id("group", str(number)), stream, "TrialProgressed", 1, number, b"{}", "tracker/1")


class CountedLog:
    """Counts commits, and lets the first one wait until it is released, so that a group gathers behind it."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.commits = 0
        self.entered = asyncio.Event()
        self.release = asyncio.Event()

    async def append(self, batch: Append) -> Appended:
        self.commits += 1
        self.entered.set()
        await self.release.wait()
        return await self.log.append(batch)


@pytest.fixture(params=["memory", "postgres"])
def log_url(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "memory" else request.getfixturevalue("database").url


@pytest.fixture
async def counted(log_url: str) -> AsyncIterator[CountedLog]:
    log: EventLog = await PostgresEventLog.connect(log_url) if log_url else MemoryEventLog()
    yield CountedLog(log)
    await log.close()


async def gather(counted: CountedLog, batches: list[Append]) -> list[Appended | BaseException]:
    """All batches at once: the first one commits alone, the others gather behind it."""
    group = GroupCommit(counted)
    calls = [asyncio.create_task(group.append(batch)) for batch in batches]
    await counted.entered.wait()
    counted.release.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    await group.close()
    return results


async def test_callers_share_a_commit_and_keep_their_order(counted: CountedLog) -> None:
    batches = [Append([event(10 * n + i, f"trial/1-{n % 2}") for i in range(n % 3)]) for n in range(1, 41)]
    results = await gather(counted, batches)
    recorded = [e for result in results if isinstance(result, Appended) for e in result.events]
    assert recorded == await counted.log.read(0)
    assert [e.id for e in recorded] == [e.id for batch in batches for e in batch.events]
    assert counted.commits <= 2


async def test_only_the_one_to_blame_is_refused(counted: CountedLog) -> None:
    batches = [Append([event(n), event(100 + n)]) for n in range(20)]
    batches[13] = Append([event(500), event(7)])  # 7 is recorded by the eighth
    results = await gather(counted, batches)
    assert isinstance(results[13], DuplicateEvent)
    assert results[13].event_id == event(7).id
    assert all(isinstance(result, Appended) for n, result in enumerate(results) if n != 13)
    assert await counted.log.head() == 38
    assert await counted.log.find(event(500).id) is None


async def test_guards_see_what_the_group_writes_before_them(counted: CountedLog) -> None:
    results = await gather(
        counted,
        [
            Append([event(0, "other/1")]),
            Append([event(1)], expected_versions={"trial/1-1": 0}),
            Append([event(2)], expected_versions={"trial/1-1": 1}),
            Append([event(3)], expected_versions={"trial/1-1": 1}),
            Append([event(4)], expected_versions={"trial/1-1": 2}),
        ],
    )
    refused = results[3]
    assert isinstance(refused, VersionConflict)
    assert (refused.expected, refused.actual) == (1, 2)
    assert [e.id for e in await counted.log.read(0)] == [event(n).id for n in (0, 1, 2, 4)]


async def test_a_checkpoint_is_refused(counted: CountedLog) -> None:
    with pytest.raises(ValueError, match="checkpoint"):
        await GroupCommit(counted).append(Append([event(1)], Checkpoint("searcher"), 1))


async def test_a_cancelled_caller_is_not_recorded_and_closing_refuses_the_rest(counted: CountedLog) -> None:
    group = GroupCommit(counted)
    first = asyncio.create_task(group.append(Append([event(1)])))
    await counted.entered.wait()
    cancelled = asyncio.create_task(group.append(Append([event(2)])))
    third = asyncio.create_task(group.append(Append([event(3)])))
    await asyncio.sleep(0)
    cancelled.cancel()
    counted.release.set()
    await asyncio.gather(first, third)
    assert [e.id for e in await counted.log.read(0)] == [event(1).id, event(3).id]
    counted.release.clear()
    late = asyncio.create_task(group.append(Append([event(4)])))
    await asyncio.sleep(0)
    await group.close()
    with pytest.raises(LogUnavailable):
        await late
