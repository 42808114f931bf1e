"""Carries the spool to the receivers: publishes each lane in order, and drops a report when it is told that it is committed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError
from pydantic import ValidationError

from tenuto.schemas import subjects
from tenuto.schemas.reports import (
    HEADER_AGENT,
    HEADER_FOLLOWED,
    HEADER_KIND,
    HEADER_SEQUENCE,
    HEADER_SPOOL,
    HEADER_TRACE,
    Committed,
)
from tenuto.schemas.subjects import Lane
from tenuto.workers.agent.changed import Changed, obey_cancellation
from tenuto.workers.agent.database import Disk
from tenuto.workers.agent.spool import Spool, SpoolReport

logger = logging.getLogger(__name__)

PUBLISH_REPORTS_MAX = 100
"""Published at once: the acknowledgements of a hundred come back together."""
UNCONFIRMED_REPORTS_MAX = 2_000
"""Published and not yet committed; beyond it the lane waits for its receiver, so a gap costs at most so many to send again."""
PUBLISH_SECONDS_MAX = 5.0
ASK_SECONDS_MAX = 2.0
SILENCE_SECONDS_MAX = 5.0
"""Reports are out and no word of a commit came: ask the receiver. It answers within one batch if it is there."""
RETRY_SECONDS = 0.5
"""Between attempts while the bus, the stream or the receiver is away."""


class LanePublisher:
    """One lane. Runs as long as the agent; the bus may come and go."""

    def __init__(
        self, lane: Lane, agent_id: str, bus: Client, spool: Spool, disk: Disk, spooled: Changed, committed: Changed,
        new_spool_id: Callable[[], str],
    ) -> None:  # fmt: skip
        self._lane, self._agent_id, self._bus, self._spool, self._disk = lane, agent_id, bus, spool, disk
        self._spooled, self._committed, self._new_spool_id = spooled, committed, new_spool_id
        self._js: JetStreamContext = bus.jetstream(timeout=PUBLISH_SECONDS_MAX)
        self._sent = 0
        """Last sequence that is published."""
        self._heard = 0
        """Last sequence that the receiver is known to have committed."""
        self._spool_id = spool.id

    async def run(self) -> None:
        subscription = await self._bus.subscribe(subjects.committed(self._lane, self._agent_id), cb=self._on_committed)
        try:
            self._sent = self._heard = await self._disk(self._spool.committed, self._lane)
            await self._ask()
            while True:
                obey_cancellation()
                if self._spool_id != self._spool.id:  # another lane found that the spool must begin again
                    self._spool_id, self._sent, self._heard = self._spool.id, 0, 0
                await self._publish_some()
        finally:
            await _unsubscribe(subscription)

    async def _publish_some(self) -> None:
        spooled, committed = self._spooled.next(), self._committed.next()
        # Another task may begin the spool again at each await: numbers are only good with the id that they were read under.
        spool_id, room = self._spool_id, UNCONFIRMED_REPORTS_MAX - (self._sent - self._heard)
        limit = min(room, PUBLISH_REPORTS_MAX)
        wanted = limit > 0 and self._spool.last(self._lane) > self._sent  # most notices are about other lanes
        reports = await self._disk(self._spool.pending, self._lane, self._sent, limit) if wanted else []
        if not reports:
            heard = self._heard
            await _first_of(spooled, committed, timeout_seconds=SILENCE_SECONDS_MAX if self._sent > heard else None)
            if self._sent > heard == self._heard and not spooled.is_set():
                await self._ask(stuck_at=heard)
            return
        if spool_id != self._spool.id or spool_id != self._spool_id:
            return
        try:
            await asyncio.gather(*(self._publish(report, spool_id, report is not reports[-1]) for report in reports))
        except (NatsError, JetStreamError, OSError) as error:
            # Some of them may be in the stream: publishing them again only makes doubles, which receivers drop.
            logger.debug("lane %s: %s", self._lane, error)
            await asyncio.sleep(RETRY_SECONDS)
        else:
            if spool_id == self._spool_id:
                self._sent = max(self._sent, reports[-1].sequence)

    async def _publish(self, report: SpoolReport, spool_id: str, followed: bool) -> None:
        headers = {
            HEADER_AGENT: self._agent_id,
            HEADER_SPOOL: spool_id,
            HEADER_SEQUENCE: str(report.sequence),
            HEADER_KIND: report.kind,
        }
        if report.trace:
            headers[HEADER_TRACE] = report.trace
        if followed:
            headers[HEADER_FOLLOWED] = "1"
        await self._js.publish(subjects.ingress(self._lane, self._agent_id), report.body, headers=headers)

    async def _on_committed(self, message: Msg) -> None:
        try:
            told = Committed.from_json(message.data)
        except ValidationError as error:
            logger.warning("lane %s: a word of a commit cannot be read: %s", self._lane, error)
            return
        await self._hear(told)

    async def _hear(self, told: Committed) -> None:
        if told.spool_id != self._spool.id or self._spool_id != self._spool.id:
            return
        if told.sequence > self._spool.last(self._lane):
            logger.warning("lane %s: the receiver has %d, the spool lost its end", self._lane, told.sequence)
            await self._begin_again()
            return
        if told.sequence > self._heard:
            await self._disk(self._spool.commit, self._lane, told.sequence, told.spool_id)
            if told.spool_id != self._spool.id or self._spool_id != self._spool.id:
                return  # it began again meanwhile: that number is about another report now
            self._heard = max(self._heard, told.sequence)
            self._sent = max(self._sent, told.sequence)
        if told.resend and told.sequence >= self._heard:
            self._sent = self._heard
        self._committed.notify()

    async def _ask(self, stuck_at: int | None = None) -> None:
        """What has the receiver committed? `stuck_at`: nothing moved since then, so what is out may be lost."""
        # Known before it is asked: the answer may be older than what comes to be known meanwhile, and that is no forgetting.
        spool_id = self._spool.id
        known = await self._disk(self._spool.committed, self._lane)
        try:
            reply = await self._bus.request(
                subjects.position(self._lane, self._agent_id), spool_id.encode(), timeout=ASK_SECONDS_MAX
            )
            told = Committed.from_json(reply.data)
        except (NatsError, OSError, ValidationError) as error:
            logger.debug("lane %s: the receiver did not say its position: %s", self._lane, error)
            return
        if told.spool_id == spool_id == self._spool.id and told.sequence < known:
            logger.warning("lane %s: the receiver has forgotten reports that it had committed", self._lane)
            await self._begin_again()
            return
        await self._hear(told)
        if stuck_at is not None and told.sequence == stuck_at:
            self._sent = self._heard

    async def _begin_again(self) -> None:
        await self._disk(self._spool.begin_again, self._new_spool_id())
        self._spool_id, self._sent, self._heard = self._spool.id, 0, 0
        self._spooled.notify()
        self._committed.notify()


async def _first_of(*events: asyncio.Event, timeout_seconds: float | None) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _unsubscribe(subscription: object) -> None:
    with contextlib.suppress(NatsError, OSError):
        await subscription.unsubscribe()  # type: ignore[attr-defined]
