"""Effects: actions outside the log that recorded events call for. They run at least once, with bounded retries, and are parked
after the last one.

Handlers are idempotent by the event's id. JetStream remembers which events are handled; the position below which all are handled
is also kept in PostgreSQL, so if the bus loses its disk, some effects happen again and none is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter, time_ns
from typing import Any

import asyncpg
import nats.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from tenuto.kernel import telemetry
from tenuto.kernel.bus_errors import BUS_AWAY
from tenuto.kernel.database_errors import DATABASE_AWAY, DATABASE_FAILED
from tenuto.kernel.durable_consumer import DurableConsumer
from tenuto.kernel.eventlog import READ_EVENTS_MAX, EventLog, LogUnavailable
from tenuto.kernel.monitoring import catalogue
from tenuto.kernel.monitoring.instruments import EFFECT_ATTEMPTS, EFFECT_SECONDS
from tenuto.kernel.monitoring.sampling import Sample
from tenuto.kernel.parked import Parked, park, retry_parked
from tenuto.kernel.reactions import Failure, ReceiverProgress, Retries
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.envelope import Event, decode_event, encode_event
from tenuto.schemas.events import EVENT_MODELS

logger = logging.getLogger(__name__)

RETRIES = Retries(first_seconds=1.0, max_seconds=60.0, attempts_max=8)
"""Attempts at one effect. With their waits they take about two minutes: longer than a restart of anything, shorter than a
person's patience."""
PARALLEL_MAX = 16
"""Most handlers at work at once."""
HELD_MAX = 64
"""Most events delivered and not yet acknowledged."""
ACK_SECONDS = 30.0
"""Time after which an unacknowledged event is delivered again. While a handler is at work, the server is told so."""
FLOOR_SECONDS = 5.0
"""Pause between stores of the position below which all is handled. After a loss of the bus, effects since then are repeated."""

DATABASE_SECONDS_MAX = 5.0
"""Longest wait for the database's answer to the question if it is there."""

Handler = Callable[[Event], Awaitable[None]]


class Nack(Exception):
    """Raised by a handler that cannot work now: the effect is tried again after at least `delay_seconds`. Counts as an
    attempt."""

    def __init__(self, reason: str, delay_seconds: float) -> None:
        super().__init__(reason)
        self.delay_seconds = delay_seconds


_LOAD = "SELECT position FROM effect_positions WHERE consumer = $1"
_STORE = """
INSERT INTO effect_positions (consumer, position) VALUES ($1, $2)
ON CONFLICT (consumer) DO UPDATE SET position = excluded.position WHERE effect_positions.position < excluded.position"""


class Effects:
    def __init__(self, name: str, handlers: Mapping[str, Handler], settings: Settings, log: EventLog, pool: asyncpg.Pool) -> None:
        """`handlers` by event type. Events of one stream may be handled at the same time and out of order."""
        self._name, self._handlers, self._log, self._pool = f"effects-{name}", dict(handlers), log, pool
        self._filters = sorted({item for type_ in handlers for item in subjects.log_type(EVENT_MODELS[type_].STREAM, type_)})
        """Only subjects of these types: skipping a message of another type would cost as much as a decision does."""
        self._progress: dict[int, ReceiverProgress] = {}
        """Progress of the events that failed, by position; at most as many as are delivered and not acknowledged."""
        self._slots = asyncio.Semaphore(PARALLEL_MAX)
        self._working: set[asyncio.Task[None]] = set()
        self._consumer = DurableConsumer(
            settings,
            self._name,
            subjects.LOG_STREAM,
            "",
            self._establish,
            self._take,
            filters=self._filters,
            description=f"Effects of {', '.join(sorted(handlers))}: at least once, acknowledged when done.",
        )

    async def run(self) -> None:
        """Runs until cancelled, through any loss of the bus or the database."""
        noting = asyncio.create_task(self._note_floor(), name=f"{self._name}-floor")
        retrying = asyncio.create_task(retry_parked(self._name, self._pool, self._handle_again), name=f"{self._name}-retries")
        try:
            await self._consumer.run()
        finally:
            await stop_task(noting)
            await stop_task(retrying)
            for task in list(self._working):
                await stop_task(task)

    async def _establish(self, js: Any) -> ConsumerConfig:
        """Configuration of the consumer. Events that the new stream no longer holds are handled from the log first."""
        floor = await self._pool.fetchval(_LOAD, self._name) or 0
        # The stream may lose its beginning again while events are handled from the log, so its first sequence is read each time.
        while floor + 1 < (first := (await js.stream_info(subjects.LOG_STREAM)).state.first_seq):
            floor = await self._handle_from_log(floor, first - 1)
        return ConsumerConfig(
            name=self._name,
            durable_name=self._name,
            filter_subjects=self._filters,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=floor + 1,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_SECONDS,
            max_ack_pending=HELD_MAX,
        )

    async def _handle_from_log(self, after: int, upto: int) -> int:
        """Handles events between the two positions; returns the position up to which all are handled."""
        events = await self._log.read(after, READ_EVENTS_MAX, upto=upto, types=sorted(self._handlers))
        for event in events:
            while (delay_seconds := await self._attempt(event)) is not None:  # noqa: ASYNC110 - the wait is a pause
                await asyncio.sleep(delay_seconds)
            # After each event: these may wait for minutes, and a restart should repeat one at most.
            await self._pool.execute(_STORE, self._name, event.position)
        return events[-1].position if events.more else upto

    async def _take(self, message: Msg) -> None:
        task = asyncio.create_task(self._handle(message))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _handle(self, message: Msg) -> None:
        keeping = asyncio.create_task(self._keep(message))
        try:
            # The server is told that the message is kept (`_keep`) also while it waits for a place, or it would come a second
            # time.
            async with self._slots:
                delay_seconds = await self._handle_message(message)
            await (message.ack() if delay_seconds is None else message.nak(delay_seconds))
        except (nats.errors.Error, JetStreamError, LogUnavailable, *DATABASE_FAILED) as error:
            # Not acknowledged, so it comes again.
            logger.warning("%s leaves an event for later: %s", self._name, str(error) or type(error).__name__)
        finally:
            await stop_task(keeping)

    async def _handle_message(self, message: Msg) -> float | None:
        metadata = message.metadata
        if message.data:
            event = decode_event(message.data)
        else:  # too large for a message
            [event] = await self._log.read(metadata.sequence.stream - 1, 1)
        return await self._attempt(event) if event.type in self._handlers else None

    async def _attempt(self, event: Event) -> float | None:
        """Seconds until the next attempt; None: the effect is done, or parked."""
        begun = perf_counter()
        try:
            with telemetry.span(f"effect {event.type}", parent=event.trace, position=event.position):
                await self._handlers[event.type](event)
            self._measure("done", begun)
            self._progress.pop(event.position, None)
            return None
        except Exception as error:
            return await self._failed(event, error, begun)

    async def _failed(self, event: Event, error: Exception, begun: float) -> float | None:
        reason = f"{type(error).__name__}: {error}"
        failure = Failure(
            reason,
            "outage" if await self._is_outage(error) else "attempt",
            error.delay_seconds if isinstance(error, Nack) else None,
        )
        now_us = time_ns() // 1000
        progress = RETRIES.failed(self._progress.pop(event.position, ReceiverProgress()), failure, now_us)
        self._measure("parked" if progress.parked else "failed", begun)
        if progress.next_us is None:
            logger.error("%s parked %s at position %d", self._name, event.type, event.position, exc_info=error)
            await park(self._pool, self._name, str(event.id), event.type, encode_event(event), reason)
            return None
        self._progress[event.position] = progress
        if len(self._progress) > HELD_MAX:  # the first was given to another process
            del self._progress[next(iter(self._progress))]
        delay_seconds = (progress.next_us - now_us) / 1e6
        logger.warning(
            "%s: %s at position %d failed (%d of %s attempts so far), next in %.1f s: %s",
            self._name,
            event.type,
            event.position,
            progress.attempts,
            RETRIES.attempts_max,
            delay_seconds,
            reason,
        )
        return delay_seconds

    async def _is_outage(self, error: Exception) -> bool:
        """True if the database or the bus could not be reached, which says nothing about the effect."""
        if isinstance(error, (LogUnavailable, *BUS_AWAY)):
            return True
        if not isinstance(error, DATABASE_AWAY):
            return False
        # A handler's store raises some of these as well: the database itself is asked.
        try:
            await self._pool.fetchval("SELECT 1", timeout=DATABASE_SECONDS_MAX)
        except DATABASE_FAILED:
            return True
        return False

    def _measure(self, outcome: str, begun: float) -> None:
        EFFECT_ATTEMPTS.labels(self._name, outcome).inc()
        EFFECT_SECONDS.labels(self._name).observe(perf_counter() - begun)

    async def sample(self) -> Sequence[Sample]:
        """Source of gauges."""
        info = await self._consumer.info()
        if info is None:
            return []
        return [Sample(catalogue.EFFECTS_WAITING, (info.num_pending or 0) + (info.num_ack_pending or 0), (self._name,))]

    async def _handle_again(self, parked: Parked) -> None:
        event = decode_event(parked.body)
        try:
            await self._handlers[event.type](event)
        except Exception as error:
            if await self._is_outage(error):  # the request to deliver it again stays open
                raise LogUnavailable(str(error)) from error
            raise

    async def _keep(self, message: Msg) -> None:
        while True:
            await asyncio.sleep(ACK_SECONDS / 3)
            with contextlib.suppress(nats.errors.Error):
                await message.in_progress()

    async def _note_floor(self) -> None:
        while True:
            await asyncio.sleep(FLOOR_SECONDS)
            with contextlib.suppress(nats.errors.Error, JetStreamError, *DATABASE_FAILED):
                await self.note_floor()

    async def note_floor(self) -> None:
        info = await self._consumer.info()
        if info is not None and info.ack_floor is not None and info.ack_floor.stream_seq:
            await self._pool.execute(_STORE, self._name, info.ack_floor.stream_seq)
