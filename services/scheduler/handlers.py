"""Questions from the bus about the queue, as it is and as it was."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel.clock import Clock
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.queue import QueueAnswer, QueueQuestion
from tenuto.services.scheduler.adapters.past_queue import PastQueues
from tenuto.services.scheduler.adapters.what_if import WhatIfs
from tenuto.services.scheduler.explain import queue_answer
from tenuto.services.scheduler.state import State

logger = logging.getLogger(__name__)


class Questions:
    def __init__(self, loop: ServiceLoop[State], bus: Client, clock: Clock, settings: Settings) -> None:
        self._loop, self._bus, self._clock = loop, bus, clock
        self._past, self._what_ifs = PastQueues(settings), WhatIfs(settings)

    @contextlib.asynccontextmanager
    async def answered(self) -> AsyncIterator[None]:
        asked = {
            subjects.QUEUE: self._on_queue,
            subjects.PAST: _by(self._past.answer),
            subjects.WHAT_IF: _by(self._what_ifs.answer),
        }
        subscribed = [await self._bus.subscribe(subject, cb=handler) for subject, handler in asked.items()]
        try:
            yield
        finally:
            await self._past.stop()
            for subscription in subscribed:
                with contextlib.suppress(NatsError):
                    await subscription.unsubscribe()

    async def _on_queue(self, message: Msg) -> None:
        """Answers from the committed state, once it is recovered: an earlier state would show an empty queue."""
        await self._loop.wait_ready()
        try:
            answer = queue_answer(self._loop.state, QueueQuestion.from_json(message.data), self._clock.now_us())
        except ValidationError as error:
            logger.warning("a question about the queue cannot be read: %s", error)
            answer = QueueAnswer(pools=(), error="The scheduler cannot read this question; run the same version of Tenuto.")
        with contextlib.suppress(NatsError):
            await message.respond(answer.to_json())


def _by(answer: Callable[[bytes], Awaitable[bytes]]) -> Callable[[Msg], Awaitable[None]]:
    """Handler that answers from another process, one question after the other."""

    async def handle(message: Msg) -> None:
        found = await answer(message.data)
        with contextlib.suppress(NatsError):
            await message.respond(found)

    return handle
