"""A service loop with the tally core on the in-memory log."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence

from tenuto.kernel.eventlog import Append
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tests.support.manual_clock import ManualClock
from tests.support.memory_log import MemoryEventLog
from tests.support.tally_core import TallyCore, TallyState, priority_changed, weight_changed


def make_loop(log: MemoryEventLog, core: TallyCore | None = None, **settings: int) -> ServiceLoop[TallyState]:
    return ServiceLoop(core or TallyCore(), log, LogFeed(log), ManualClock(), Settings(**settings), checks=True)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def running(loop: ServiceLoop[TallyState]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(loop.run())
    try:
        yield task
    finally:
        await stop_task(task)


async def add_inputs(log: MemoryEventLog, events: Sequence[Event]) -> int:
    appended = await log.append(Append(events))
    return appended.events[-1].position


def inputs(count: int, seed: int = 0) -> list[Event]:
    clock, chance = ManualClock(seed=seed), random.Random(seed)
    return [
        priority_changed(clock.new_id(), chance.randint(1, 3), chance.randint(1, 9))
        if chance.random() < 0.7
        else weight_changed(clock.new_id(), chance.randint(1, 3), 2.0)
        for _ in range(count)
    ]


def own(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.type == "ExperimentCanceled"]


async def whole(log: MemoryEventLog) -> list[Event]:
    return await log.read(0, 10_000)
