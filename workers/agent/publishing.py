"""Carries the spool to the receivers: publishes each lane in order, and drops a report when its commit is confirmed.

`lane_decisions.py` decides what is sent and when; this module does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError
from pydantic import ValidationError

from tenuto.kernel.backoff import Seldom
from tenuto.schemas import subjects
from tenuto.schemas.reports import (
    HEADER_AGENT,
    HEADER_CLEAR,
    HEADER_FOLLOWED,
    HEADER_KIND,
    HEADER_MESSAGE_ID,
    HEADER_ROUND,
    HEADER_SEQUENCE,
    HEADER_SPOOL,
    HEADER_TOKEN,
    HEADER_TRACE,
    Committed,
)
from tenuto.schemas.subjects import Lane
from tenuto.workers.agent import lane_decisions
from tenuto.workers.agent.change_signal import Changed, obey_cancellation
from tenuto.workers.agent.database import Disk
from tenuto.workers.agent.spool import Spool, SpoolReport

logger = logging.getLogger(__name__)

PUBLISH_REPORTS_MAX = 100
"""Most reports published at once; their acknowledgements come back together."""
PUBLISH_SECONDS_MAX = 5.0
ASK_SECONDS_MAX = 2.0
"""Longest wait for the answer to a position request; if the request also clears the stream, CLEAR_SECONDS_MAX."""
CLEAR_SECONDS_MAX = 10.0
LINK_SECONDS_BETWEEN = 0.2
"""Pause between checks of a lost link while reports wait."""


class LanePublisher:
    """Publisher of one lane. It runs as long as the agent, through any loss of the bus."""

    def __init__(
        self, lane: Lane, agent_id: str, bus: Client, spool: Spool, disk: Disk, spooled: Changed, committed: Changed,
        new_spool_id: Callable[[], str], *, first_round: int | None = None, token_of: Callable[[str], str] = lambda _: "",
    ) -> None:  # fmt: skip
        """`first_round`: a round number never used before by this spool; default: the time. `token_of`: token of an
        allocation, carried by reports about it."""
        self._token_of = token_of
        self._lane, self._agent_id, self._bus, self._spool, self._disk = lane, agent_id, bus, spool, disk
        self._spooled, self._committed, self._new_spool_id = spooled, committed, new_spool_id
        self._js: JetStreamContext = bus.jetstream(timeout=PUBLISH_SECONDS_MAX)
        self._state = lane_decisions.begin(first_round or time.time_ns() // 1_000_000, 0, time.monotonic())
        self._spool_id = spool.id
        self._stream_last = 0
        """Highest stream sequence of a report. A sequence not beyond it shows that the stream was made anew."""
        self._reconnects = 0
        self._seldom = Seldom(logger)
        self._seldom_asked = Seldom(logger)
        self.published = 0
        """Number of messages given to the bus since the start."""

    async def run(self) -> None:
        subscription = await self._bus.subscribe(subjects.committed(self._lane, self._agent_id), cb=self._on_committed)
        try:
            # After the subscription, so that no commit message falls between the two.
            committed = await self._disk(self._spool.committed, self._lane)
            self._state = lane_decisions.begin(self._state.round, committed, time.monotonic())
            await self._ask()
            while True:
                obey_cancellation()
                if self._spool_id != self._spool.id:  # another lane has begun the spool again
                    self._follow_spool()
                await self._look_at_link()
                await self._step()
        finally:
            await _unsubscribe(subscription)

    async def _step(self) -> None:
        # Taken before the state is read: a report that is added during the step ends the wait at its end.
        spooled, committed = self._spooled.next(), self._committed.next()
        self._spool.set_room(self._lane, self._state.room_until)
        last = self._spool.last(self._lane) + self._spool.queued(self._lane)
        self._state, step = lane_decisions.next_step(self._state, last, time.monotonic(), PUBLISH_REPORTS_MAX)
        match step.do:
            case "ask":
                await self._ask()
            case "publish":
                await self._publish_some(step.limit)
            case "wait":
                timeout_seconds = None if step.until is None else max(step.until - time.monotonic(), 0.0)
                await _first_of(spooled, committed, timeout_seconds=timeout_seconds)

    async def _look_at_link(self) -> None:
        """Waits for the link. While it is lost nothing is published, because the client would keep messages and send them
        late."""
        while not self._bus.is_connected:  # noqa: ASYNC110 - the client has no event for this
            await asyncio.sleep(LINK_SECONDS_BETWEEN)
        reconnects = self._bus.stats["reconnects"]
        if reconnects != self._reconnects:
            self._reconnects = reconnects
            self._state = lane_decisions.reconnected(self._state, time.monotonic())

    async def _publish_some(self, limit: int) -> None:
        # Another task may begin the spool again, or a new round may begin, at each await: numbers are only good with the spool's
        # id and the round under which they were read.
        before, spool_id = self._state, self._spool_id
        reports = await self._disk(self._take, before.sent, limit)
        if not reports or spool_id != self._spool.id or spool_id != self._spool_id:
            return
        publishing = [self._publish(item, spool_id, before.round, item is not reports[-1]) for item in reports]
        self.published += len(reports)
        answers = await asyncio.gather(*publishing, return_exceptions=True)
        if spool_id != self._spool_id:
            return
        taken = 0
        # Only reports before the first failure count as sent: the receiver drops those behind a gap.
        for answer in answers:
            if isinstance(answer, BaseException):
                if not isinstance(answer, (NatsError, JetStreamError, OSError)):
                    raise answer
                break
            taken += 1
        self._note_failure(answers[taken:])
        through = reports[taken - 1].sequence if taken else before.sent
        # A new round begins at the first report that is not committed, so the progress of an old one says nothing about it.
        if self._state.round == before.round:
            self._state = lane_decisions.published(self._state, through, taken == len(reports), time.monotonic())
        self._note_stream([answer for answer in answers[:taken] if isinstance(answer, int)])

    def _take(self, after: int, limit: int) -> list[SpoolReport]:
        # Numbers are given only when reports are about to be sent, so that the allocations take turns.
        lacking = after + limit - self._spool.last(self._lane)
        if lacking > 0:
            self._spool.number_some(self._lane, lacking)
        return self._spool.pending(self._lane, after, limit)

    async def _publish(self, report: SpoolReport, spool_id: str, round: int, followed: bool) -> int:
        """Publishes a report. Returns the stream sequence of the message; 0 if the stream had it already."""
        headers = {
            HEADER_AGENT: self._agent_id,
            HEADER_SPOOL: spool_id,
            HEADER_SEQUENCE: str(report.sequence),
            HEADER_ROUND: str(round),
            HEADER_KIND: report.kind,
            HEADER_TOKEN: self._token_of(report.allocation_id),
            # A report that is sent again in the same round, because the answer was lost, is stored once. A new round has new ids:
            # reports that were dropped behind a gap must be stored again.
            HEADER_MESSAGE_ID: f"{spool_id}.{self._lane}.{report.sequence}.{round}",
        }
        if report.trace:
            headers[HEADER_TRACE] = report.trace
        if followed:
            headers[HEADER_FOLLOWED] = "1"
        ack = await self._js.publish(subjects.ingress(self._lane, self._agent_id), report.body, headers=headers)
        return 0 if ack.duplicate else ack.seq

    def _note_failure(self, failures: Sequence[object]) -> None:
        if failures:
            reason = str(failures[0]) or type(failures[0]).__name__
            self._seldom.warn(f"lane {self._lane}: the bus did not take reports, which wait on disk: {reason}")
        else:
            self._seldom.over(f"lane {self._lane}: the bus takes reports again")

    def _note_stream(self, sequences: Sequence[int]) -> None:
        new = [sequence for sequence in sequences if sequence]
        if new and min(new) <= self._stream_last:
            logger.warning("lane %s: the bus has lost its store; asking what is committed", self._lane)
            self._stream_last = 0
            self._state = lane_decisions.reconnected(self._state, time.monotonic())
        self._stream_last = max([self._stream_last, *new])

    async def _on_committed(self, message: Msg) -> None:
        try:
            word = Committed.from_json(message.data)
        except ValidationError as error:
            logger.warning("lane %s: a commit message cannot be read: %s", self._lane, error)
            return
        await self._hear(word)

    async def _hear(self, word: Committed) -> bool:
        """Takes a commit message; False if it is not about this spool as it is now."""
        if word.spool_id != self._spool.id or self._spool_id != self._spool.id:
            return False
        # New reports would get numbers that the receiver has committed for others, and be dropped as repetitions.
        if word.sequence > self._spool.last(self._lane):
            logger.warning("lane %s: the receiver has committed %d, but the spool lost its end", self._lane, word.sequence)
            await self._begin_again()
            return False
        news = word.sequence > self._state.heard
        if news:
            await self._disk(self._spool.commit, self._lane, word.sequence, word.spool_id)
            if word.spool_id != self._spool.id or self._spool_id != self._spool.id:
                return False  # the spool began again meanwhile: the number now means another report
        before = self._state
        self._state = lane_decisions.told(before, word.sequence, word.resend, word.round, time.monotonic())
        if news or self._state is not before:
            self._committed.notify()
        return True

    async def _ask(self) -> None:
        """Asks the receiver for its committed position, and for the number of messages in the stream."""
        # Read before the question: an answer older than commits heard meanwhile does not mean that the receiver forgot them.
        spool_id, before = self._spool.id, self._state
        known = await self._disk(self._spool.committed, self._lane)
        self._state = lane_decisions.asked(self._state, time.monotonic())
        headers = {HEADER_SPOOL: spool_id} | ({HEADER_CLEAR: "1"} if before.clear else {})
        if before.clear:
            logger.warning("lane %s: the stream holds far more messages than can be needed; they are cleared", self._lane)
        try:
            reply = await self._bus.request(
                subjects.position(self._lane, self._agent_id),
                timeout=CLEAR_SECONDS_MAX if before.clear else ASK_SECONDS_MAX,
                headers=headers,
            )
            word = Committed.from_json(reply.data)
        except (NatsError, OSError, ValidationError) as error:
            reason = str(error) or type(error).__name__
            self._seldom_asked.warn(f"lane {self._lane}: the receiver did not answer: {reason}")
            return
        self._seldom_asked.over(f"lane {self._lane}: the receiver answers again")
        # The spool has deleted reports up to `known`, so the receiver would wait for the missing numbers for ever.
        if word.spool_id == spool_id == self._spool.id and word.sequence < known:
            logger.warning("lane %s: the receiver has forgotten reports that it had committed", self._lane)
            await self._begin_again()
            return
        if await self._hear(word):
            self._state = lane_decisions.answered(self._state, before, word.sequence, word.stored, time.monotonic())

    async def _begin_again(self) -> None:
        await self._disk(self._spool.begin_again, self._new_spool_id())
        self._follow_spool()
        self._spooled.notify()
        self._committed.notify()

    def _follow_spool(self) -> None:
        self._spool_id = self._spool.id
        self._state = lane_decisions.begin(self._state.round + 1, 0, time.monotonic())


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
