"""The tracker's core in the service loop: a report that is sent again while the first one waits."""

from __future__ import annotations

import asyncio

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.ids import name_id
from tenuto.schemas.reports import ProgressReport
from tenuto.services.tracker.commands import RecordTrialReport
from tenuto.services.tracker.core import TrackerCore
from tests.support.memory_log import MemoryEventLog


async def test_the_same_refused_report_twice_in_one_batch_is_recorded_once() -> None:
    log = MemoryEventLog()
    loop = ServiceLoop(TrackerCore(), log, LogFeed(log), SystemClock(), Settings(), checks=True)
    running = asyncio.create_task(loop.run())
    report = ProgressReport(trial_id="1-1", allocation_id="1-1-1", batches=1, length=1)
    command, other = RecordTrialReport(name_id("a"), 0, report), RecordTrialReport(name_id("b"), 0, report)
    first, second, third = await loop.submit_many([command, command, other])
    assert first == second != third
    assert [event.type for event in await log.read(0)] == ["ReportRefused"] * 2
    await stop_task(running)
