"""The scheduler's composition root. It only decides: no effects, no read models, nothing to answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from nats.aio.client import Client

from tenuto.kernel.clock import Clock
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.feed import Feed
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.settings import Settings
from tenuto.kernel.stream_feed import StreamFeed
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.pool import AllocationPreempted
from tenuto.services.scheduler.core import SchedulerCore
from tenuto.services.scheduler.state import State

logger = logging.getLogger(__name__)


class Scheduler:
    def __init__(self, loop: ServiceLoop[State]) -> None:
        self.loop = loop
        loop.on_folded(_tell)

    async def run(self) -> None:
        """Until cancelled."""
        await self.loop.run()


async def build(
    settings: Settings, log: EventLog, bus: Client, clock: Clock, *, feed: Feed | None = None, checks: bool = False
) -> Scheduler:
    """For tests: `feed` is where events come from instead of the bus, `checks` asserts the invariants after each commit."""
    return Scheduler(ServiceLoop(SchedulerCore(), log, feed or StreamFeed(log, bus), clock, settings, checks=checks))


def _tell(state: State, events: Sequence[Event]) -> None:
    """One line for people when work is interrupted; all other decisions are in the log with their reasons."""
    for event in events:
        if event.type == AllocationPreempted.TYPE:
            assert isinstance(event.data, AllocationPreempted)
            logger.info("%s: allocation %s. %s", event.type, event.data.allocation_id, event.data.reason.text)
