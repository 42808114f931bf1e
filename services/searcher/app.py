"""The searcher's composition root: it decides, and proposes trials where a sampler outside the pure rules is asked for."""

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
from tenuto.kernel.settings import Settings
from tenuto.kernel.stream_feed import StreamFeed
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed, ExperimentStarted
from tenuto.schemas.sentences import sentence_of
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.effects import Proposer
from tenuto.services.searcher.state import SearcherState

logger = logging.getLogger(__name__)


class Searcher:
    def __init__(self, loop: ServiceLoop[SearcherState], clock: Clock) -> None:
        self.loop = loop
        self._proposer = Proposer(loop, clock)
        loop.on_folded(_tell)

    def watched(self) -> MonitoredState:
        return self.loop.watched()

    async def run(self) -> None:
        """Runs the service until cancelled."""
        proposing = asyncio.create_task(self._proposer.run(), name="searcher-proposer")
        try:
            await self.loop.run()
        finally:
            await stop_task(proposing)


async def build(
    settings: Settings, log: EventLog, bus: Client, clock: Clock, *, feed: EventFeed | None = None, checks: bool = False
) -> Searcher:
    """Builds the searcher. For tests: `feed` replaces the bus as the source of events, `checks` asserts the invariants after each
    commit."""
    return Searcher(ServiceLoop(SearcherCore(), log, feed or StreamFeed(log, bus), clock, settings, checks=checks), clock)


def _tell(state: SearcherState, events: Sequence[Event]) -> None:
    """One line for people when an experiment starts and ends; each trial's decisions are in the log with their reasons."""
    for event in events:
        match event.type:
            case ExperimentStarted.TYPE | ExperimentCanceled.TYPE:
                logger.info("%s: experiment %s", event.type, event.correlation_id)
            case ExperimentCompleted.TYPE:
                logger.info("%s: experiment %s. %s", event.type, event.correlation_id, sentence_of(event))
            case ExperimentFailed.TYPE:
                assert isinstance(event.data, ExperimentFailed)
                logger.info("%s: experiment %s. %s", event.type, event.correlation_id, event.data.error)
