"""The scheduler on the log: one that is killed and started again grants what one would that never stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.eventlog import Append, EventLog
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.replay import fold, verify_decisions
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.ids import name_id
from tenuto.services.scheduler.app import Scheduler, build
from tenuto.services.scheduler.core import SchedulerCore
from tests.support.memory_log import MemoryEventLog
from tests.support.record import broken_rules
from tests.support.scheduler_driver import exited, joined, requested, stopped, submitted
from tests.support.scheduler_model import judge
from tests.support.waiting import SECONDS_MAX

SETTINGS = Settings(snapshot_events=10, batch_events_max=7)
TRIALS = 10
RELEASES = 3 * TRIALS
"""Two experiments of TRIALS trials: the workers of each first allocation of experiment 1 are lost."""


@contextlib.asynccontextmanager
async def running(log: EventLog) -> AsyncIterator[Scheduler]:
    app = await build(SETTINGS, log, None, SystemClock(), feed=LogFeed(log), checks=True)
    task = asyncio.create_task(app.run())
    try:
        yield app
    finally:
        await stop_task(task)


def told(data: EventData, key: str) -> Event:
    return Event(
        id=name_id(data.TYPE, key),
        stream=data.stream(),
        type=data.TYPE,
        schema_version=data.VERSION,
        time_us=0,
        payload=data.to_json(),
        actor=f"{data.OWNER}/1",
    )


def story() -> list[Event]:
    """Gangs of two at low priority, then small urgent ones, on three slots."""
    facts = [
        joined("a", 2), joined("b", 1),
        submitted(1, slots=2, priority=60), *requested(1, *range(1, TRIALS + 1)),
        submitted(2, priority=10), *requested(2, *range(1, TRIALS + 1)),
    ]  # fmt: skip
    return [told(data, str(number)) for number, data in enumerate(facts)]


def answer(grant: AllocationGranted) -> list[Event]:
    """Events that end an allocation: the first one of each low-priority trial is lost, all others finish."""
    if grant.experiment_id == 1 and grant.allocation_id.endswith("-1"):
        facts = [exited(grant.allocation_id, "lost")]
    else:
        facts = [stopped(grant.trial_id), exited(grant.allocation_id)]
    return [told(data, grant.allocation_id) for data in facts]


async def drive(log: EventLog, after: int, steps_max: int) -> int:
    """Answers grants, at most so many of them; returns the position up to which all are answered."""
    released = sum(event.type == "AllocationReleased" for event in await log.read(0, 10_000, upto=after))
    async for _ in log.watch():
        for event in await log.read(after, 500):
            if steps_max == 0:
                return after
            after = event.position
            if isinstance(event.data, AllocationGranted):
                await log.append(Append(answer(event.data)))
                steps_max -= 1
            released += event.type == "AllocationReleased"
            if released == RELEASES:
                return after
    raise AssertionError("the log is watched for ever")


async def check_record(log: EventLog) -> list[Event]:
    events = await log.read(0, 10_000)
    assert judge(events) == []
    assert [text for text in broken_rules(events) if "finished" not in text] == []
    verdict = verify_decisions(SchedulerCore(), events)
    assert verdict.ok, verdict.divergences
    assert verdict.decisions == sum(event.actor == f"scheduler/{SchedulerCore.rule_version}" for event in events) >= 2 * RELEASES
    return events


async def restarted_scheduler_goes_on(log: EventLog) -> None:
    await log.append(Append(story()))
    after = 0
    for steps in (1, 7, 12, 1000):
        async with running(log):
            after = await drive(log, after, steps)
    events = await check_record(log)
    async with running(log) as app:
        await app.loop.wait_position(await log.head())
        assert app.loop.core.dump(app.loop.state) == SchedulerCore().dump(fold(SchedulerCore(), events))
        assert not app.loop.state.allocations


async def test_a_restarted_scheduler_goes_on_in_memory() -> None:
    await restarted_scheduler_goes_on(MemoryEventLog())


async def test_a_restarted_scheduler_goes_on_in_postgres(database: Any) -> None:
    log = await PostgresEventLog.connect(database.url)
    try:
        await restarted_scheduler_goes_on(log)
    finally:
        await log.close()


async def test_a_killed_scheduler_process_goes_on(database: Any, nats: Any) -> None:
    environment = os.environ | {"TENUTO_DATABASE_URL": database.url, "TENUTO_NATS_URL": nats.url}
    log = await PostgresEventLog.connect(database.url)
    await log.append(Append(story()))
    after = 0
    for steps in (3, 11, 1000):
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tenuto.services.scheduler", env=environment)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                after = await drive(log, after, steps)
        finally:
            process.kill()
            await process.wait()
    await check_record(log)
    await log.close()
