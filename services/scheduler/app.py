"""The scheduler's composition root. It decides, and answers who waits for slots and why."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel.clock import Clock
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.feed import Feed
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.service import spare_collector
from tenuto.kernel.settings import Settings
from tenuto.kernel.stream_feed import StreamFeed
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.pool import AllocationPreempted
from tenuto.schemas.queue import QueueAnswer, QueueQuestion
from tenuto.schemas.sentences import sentence_of
from tenuto.services.scheduler.core import SchedulerCore
from tenuto.services.scheduler.explain import queue_answer
from tenuto.services.scheduler.state import State

logger = logging.getLogger(__name__)


class Scheduler:
    def __init__(self, loop: ServiceLoop[State], bus: Client | None = None, clock: Clock | None = None) -> None:
        self.loop, self._bus, self._clock = loop, bus, clock
        loop.on_folded(_tell)

    async def run(self) -> None:
        """Runs the service until cancelled."""
        if self._bus is None or self._clock is None:
            await self.loop.run()
            return
        questions = await self._bus.subscribe(subjects.QUEUE, cb=self._on_question)
        sparing = asyncio.create_task(self._spare_collector(), name="spare-collector")
        try:
            await self.loop.run()
        finally:
            await stop_task(sparing)
            with contextlib.suppress(NatsError):
                await questions.unsubscribe()

    async def _spare_collector(self) -> None:
        """A state has no cycles; to look for some in one of 100,000 trials would take a decision a quarter of a second."""
        await self.loop.wait_ready()
        spare_collector()

    async def _on_question(self, message: Msg) -> None:
        """Answers from the committed state. One that is not recovered yet would answer that nobody waits."""
        assert self._clock is not None
        await self.loop.wait_ready()
        try:
            answer = queue_answer(self.loop.state, QueueQuestion.from_json(message.data), self._clock.now_us())
        except ValidationError as error:
            logger.warning("a question about the queue cannot be read: %s", error)
            answer = QueueAnswer(pools=(), error="The scheduler cannot read this question; run the same version of Tenuto.")
        with contextlib.suppress(NatsError):
            await message.respond(answer.to_json())


async def build(
    settings: Settings, log: EventLog, bus: Client | None, clock: Clock, *, feed: Feed | None = None, checks: bool = False
) -> Scheduler:
    """For tests: `feed` is where events come from instead of the bus, `checks` asserts the invariants after each commit."""
    if feed is None:
        assert bus is not None
        feed = StreamFeed(log, bus)
    return Scheduler(ServiceLoop(SchedulerCore(), log, feed, clock, settings, checks=checks), bus, clock)


def _tell(state: State, events: Sequence[Event]) -> None:
    """One line for people when work is interrupted; all other decisions are in the log with their reasons."""
    for event in events:
        if event.type == AllocationPreempted.TYPE:
            assert isinstance(event.data, AllocationPreempted)
            logger.info("%s: allocation %s. %s", event.type, event.data.allocation_id, sentence_of(event))
