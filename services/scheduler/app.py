"""The scheduler's composition root. It decides, and answers who waits for slots and why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from nats.aio.client import Client

from tenuto.kernel.clock import Clock
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.feed import EventFeed
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.monitoring.sampling import MonitoredState
from tenuto.kernel.service import spare_collector
from tenuto.kernel.settings import Settings
from tenuto.kernel.stream_feed import StreamFeed
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.pool import AllocationPreempted
from tenuto.schemas.sentences import sentence_of
from tenuto.services.scheduler.adapters.gauges import pools_of
from tenuto.services.scheduler.core import SchedulerCore
from tenuto.services.scheduler.handlers import Questions
from tenuto.services.scheduler.state import State

logger = logging.getLogger(__name__)


class Scheduler:
    def __init__(self, loop: ServiceLoop[State], questions: Questions | None = None) -> None:
        """`questions`: None in tests without a bus."""
        self.loop, self._questions = loop, questions
        loop.on_folded(_tell)

    def watched(self) -> MonitoredState:
        return self.loop.watched().adding({"pools": lambda: pools_of(self.loop)})

    async def run(self) -> None:
        """Runs the service until cancelled."""
        if self._questions is None:
            await self.loop.run()
            return
        async with self._questions.answered():
            sparing = asyncio.create_task(self._spare_collector(), name="spare-collector")
            try:
                await self.loop.run()
            finally:
                await stop_task(sparing)

    async def _spare_collector(self) -> None:
        """Keeps the collector from large scans: a state has no cycles, and a search for them in one of 100,000 trials would cost
        a decision a quarter of a second."""
        await self.loop.wait_ready()
        spare_collector()


async def build(
    settings: Settings, log: EventLog, bus: Client | None, clock: Clock, *, feed: EventFeed | None = None, checks: bool = False
) -> Scheduler:
    """Scheduler with its loop. For tests: `feed` replaces the bus as the source of events, and `checks` asserts the invariants
    after each commit."""
    if feed is None:
        assert bus is not None
        feed = StreamFeed(log, bus)
    loop = ServiceLoop(SchedulerCore(), log, feed, clock, settings, checks=checks)
    return Scheduler(loop, None if bus is None else Questions(loop, bus, clock, settings))


def _tell(state: State, events: Sequence[Event]) -> None:
    """One line for people when work is interrupted; all other decisions are in the log with their reasons."""
    for event in events:
        if event.type == AllocationPreempted.TYPE:
            assert isinstance(event.data, AllocationPreempted)
            logger.info("%s: allocation %s. %s", event.type, event.data.allocation_id, sentence_of(event))
