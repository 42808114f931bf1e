"""The feed over the bus: events come from JetStream, and from the log when JetStream does not have them.

The stream's sequence is the log's position, so a gap is seen at once and is read from the log. Messages are only a faster way to
learn of events: whatever the bus loses, repeats or holds back, the feed stays dense and in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from tenuto.kernel.backoff import Backoff, Seldom
from tenuto.kernel.eventlog import READ_BYTES_MAX, EventLog
from tenuto.kernel.head_watch import HeadWatch, read_patiently
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.envelope import Event, decode_event

logger = logging.getLogger(__name__)

QUEUE_MESSAGES_MAX = 10_000
"""Most messages received and not yet taken. Further ones are dropped, and read from the log later."""
QUEUE_BYTES_MAX = 32 << 20
"""Most bytes of these messages; QUEUE_MESSAGES_MAX usual ones have a tenth of it."""
HEARTBEAT_SECONDS = 1.0
SILENCE_SECONDS_MAX = 3.5
"""Silence after which a consumer counts as gone (server restarted, store wiped) and is made anew: three missed heartbeats."""
RESUBSCRIBE_SECONDS = 0.5
"""Pause before the next attempt; doubles up to RESUBSCRIBE_SECONDS_MAX. Meanwhile events are read from the log."""
RESUBSCRIBE_SECONDS_MAX = 4.0
STREAM_GRACE_SECONDS = 0.25
"""Time that the relay gets to publish an event that the log has, before the event is read from the log. Usually it takes a few
milliseconds, so this delays events only if the relay is down."""
INACTIVE_SECONDS = 30.0
"""Time after which the server forgets a consumer without a client."""


class StreamFeed:
    def __init__(self, log: EventLog, bus: Client) -> None:
        self._log, self._bus = log, bus

    async def follow(self, after: int, batch_max: int) -> AsyncIterator[list[Event]]:
        async for batch in self._from_log(after, batch_max):
            after = batch[-1].position
            yield batch
        loop = asyncio.get_running_loop()
        behind_since: float | None = None
        async with HeadWatch(self._log) as watch, _Subscription(self._bus, after, watch.moved) as stream:
            while True:
                # Cleared before the checks below, so that an event or a message that arrives during them ends the wait.
                watch.moved.clear()
                patience: float | None = None
                batch = stream.take(after, batch_max)
                if batch:
                    behind_since = None
                elif (known := stream.received_beyond(after)) is not None:
                    batch = await read_patiently(self._log, after, batch_max, upto=known)
                elif watch.head > after:
                    if behind_since is None:
                        behind_since = loop.time()
                    patience = behind_since + (STREAM_GRACE_SECONDS if stream.live else 0.0) - loop.time()
                    if patience <= 0:
                        batch, patience = await read_patiently(self._log, after, batch_max), None
                else:
                    behind_since = None
                if batch:
                    after = batch[-1].position
                    yield batch
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        await watch.moved.wait()

    async def _from_log(self, after: int, batch_max: int) -> AsyncIterator[list[Event]]:
        """Events of the log up to its present end."""
        while True:
            batch = await read_patiently(self._log, after, batch_max)
            if batch:
                after = batch[-1].position
                yield batch
            if not batch.more:
                return


class _Subscription:
    """An ephemeral push consumer without acknowledgements, made again whenever it falls silent."""

    def __init__(self, bus: Client, after: int, wake: asyncio.Event) -> None:
        self._bus, self._wake = bus, wake
        self._js = bus.jetstream()
        self._received = after
        self._queue: deque[tuple[int, bytes]] = deque()
        self._queued_bytes = 0
        self._seldom = Seldom(logger)
        self._backoff = Backoff(RESUBSCRIBE_SECONDS, RESUBSCRIBE_SECONDS_MAX)
        self._heard = 0.0
        self._task: asyncio.Task[None] | None = None
        self.live = False
        """True: the consumer exists, and the server was heard within SILENCE_SECONDS_MAX."""

    async def __aenter__(self) -> _Subscription:
        self._task = asyncio.create_task(self._run(), name="stream-feed")
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_task(self._task)

    def received_beyond(self, after: int) -> int | None:
        """Position up to which the log must be read because messages were lost, dropped, or came without a body; None if none
        is missing."""
        if self._queue:
            return max(self._queue[0][0] - 1, after + 1)
        return self._received if self._received > after else None

    def take(self, after: int, batch_max: int) -> list[Event]:
        """Events that follow `after` without a gap; older messages are dropped."""
        queue = self._queue
        while queue and queue[0][0] <= after:
            self._queued_bytes -= len(queue.popleft()[1])
        # An empty body ends the batch: that event was too large for a message, and is read from the log.
        batch: list[Event] = []
        bytes_taken = 0
        while queue and len(batch) < batch_max and bytes_taken < READ_BYTES_MAX and queue[0][0] == after + 1 and queue[0][1]:
            after, body = queue.popleft()
            self._queued_bytes -= len(body)
            bytes_taken += len(body)
            batch.append(decode_event(body))
        return batch

    async def _run(self) -> None:
        while True:
            try:
                await self._subscribed()
            except (JetStreamError, nats.errors.Error, TimeoutError, OSError) as error:
                self._seldom.warn(
                    f"no consumer on {subjects.LOG_STREAM}, so the log is read instead: {str(error) or type(error).__name__}"
                )
            self.live = False
            self._wake.set()
            await asyncio.sleep(self._backoff.failed())

    async def _subscribed(self) -> None:
        """Consumes the stream; returns when the consumer has fallen silent."""
        loop = asyncio.get_running_loop()
        inbox = self._bus.new_inbox()
        # Before the consumer, which delivers as soon as it exists.
        subscription = await self._bus.subscribe(inbox, cb=self._on_message)
        try:
            await self._js.add_consumer(
                subjects.LOG_STREAM,
                ConsumerConfig(
                    deliver_subject=inbox,
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=self._received + 1,
                    ack_policy=AckPolicy.NONE,
                    idle_heartbeat=HEARTBEAT_SECONDS,
                    flow_control=True,
                    inactive_threshold=INACTIVE_SECONDS,
                    mem_storage=True,
                ),
            )
            self._heard, self.live = loop.time(), True
            self._backoff.worked()
            self._seldom.over(f"events come over {subjects.LOG_STREAM} again")
            while (silent := loop.time() - self._heard) < SILENCE_SECONDS_MAX:  # noqa: ASYNC110 - a deadline that moves
                await asyncio.sleep(SILENCE_SECONDS_MAX - silent)
        finally:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def _on_message(self, message: Msg) -> None:
        self._heard = asyncio.get_running_loop().time()
        self.live = True
        headers = message.headers
        if headers and headers.get("Status") == "100":
            # A flow-control request expects an answer; a heartbeat repeats the subject of an unanswered one.
            reply = message.reply or headers.get("Nats-Consumer-Stalled", "")
            if reply:
                await self._bus.publish(reply)
            return
        position = _stream_sequence(message.reply)
        # Counted even if the queue has no room: `received_beyond` then sends the reader to the log.
        self._received = max(self._received, position)
        if len(self._queue) < QUEUE_MESSAGES_MAX and self._queued_bytes < QUEUE_BYTES_MAX:
            self._queue.append((position, message.data))
            self._queued_bytes += len(message.data)
            self._wake.set()


def _stream_sequence(reply: str) -> int:
    """Stream sequence in a reply subject: `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>....`, or the same with domain
    and account after ACK."""
    tokens = reply.split(".")
    return int(tokens[5] if len(tokens) == 9 else tokens[7])
