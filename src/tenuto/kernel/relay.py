"""The relay publishes the log to JetStream, with stream sequence equal to log position.

Each message carries the sequence that must come before it, so the stream's last sequence is the relay's only checkpoint: two
relays, a lost acknowledgement, a stream that was rolled back or wiped are all harmless. The stream must hold this log and no
other: on a difference the relay stops and says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from time import perf_counter

import nats.errors
from nats.aio.client import Client
from nats.js.api import Header, PubAck
from nats.js.errors import APIError, NotFoundError
from nats.js.errors import Error as JetStreamError

from tenuto.kernel.backoff import Backoff, Seldom
from tenuto.kernel.bus import WRONG_LAST_SEQUENCE, ensure_stream, ensure_streams, log_stream_config
from tenuto.kernel.clock import Clock
from tenuto.kernel.eventlog import EventLog, LogUnavailable
from tenuto.kernel.head_watch import RETRY_SECONDS, RETRY_SECONDS_MAX, HeadWatch
from tenuto.kernel.monitoring import catalogue
from tenuto.kernel.monitoring.instruments import PUBLISH_SECONDS, PUBLISHED
from tenuto.kernel.monitoring.sampling import MonitoredState, Sample
from tenuto.kernel.service import run_service
from tenuto.kernel.settings import Settings
from tenuto.kernel.store_watch import StoreWatch
from tenuto.kernel.tasks import run_together
from tenuto.schemas import subjects
from tenuto.schemas.envelope import Event, encode_event
from tenuto.schemas.reports import HEADER_TRACE

logger = logging.getLogger(__name__)

IN_FLIGHT_MAX = 500
"""Most messages sent and not yet acknowledged: enough to fill the link. After a lost connection the relay sends these again."""
ACK_SECONDS_MAX = 5.0
"""Longest wait for an acknowledgement; then the relay asks the stream for its last sequence."""
LOOK_SECONDS = 5.0
"""Pause between checks of the stream while there is nothing to publish: on an idle cluster a lost stream is missing for this
time."""
REPUBLISH_EVENTS_MAX = 10_000
"""Events of the log's end that a new stream starts with. Consumers further behind read the log anyway."""
MESSAGE_BYTES_MAX = 900 * 1024
"""Largest message: NATS refuses messages over 1 MiB. A larger event is published without its body; readers fetch it from the
log."""


class Diverged(Exception):
    """The stream holds something that is not in this log. Only a person can say which of the two is wrong."""


class Relay:
    def __init__(self, log: EventLog, bus: Client, settings: Settings) -> None:
        self._log, self._bus, self._settings = log, bus, settings
        self._js = bus.jetstream(timeout=ACK_SECONDS_MAX, publish_async_max_pending=IN_FLIGHT_MAX)
        self._stores = StoreWatch(bus, settings)
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        self._seldom = Seldom(logger)
        self.position = 0
        """Position up to which the stream holds the log, as far as this relay knows."""

    def watched(self) -> MonitoredState:
        """Sources of the relay's metrics."""

        async def stores() -> Sequence[Sample]:
            return [Sample(catalogue.BUS_STORES, float(self._stores.state.ok))]

        return MonitoredState(self._not_ready, {"bus": stores}, {"relay": self})

    def _not_ready(self) -> str:
        return "" if self._bus.is_connected else "NATS cannot be reached."

    async def run(self) -> None:
        """Runs until cancelled. Raises Diverged; recovers by itself from any loss of the log or the bus."""
        await run_together(relay=self._relay(), stores=self._stores.run())

    async def _relay(self) -> None:
        async with HeadWatch(self._log) as watch:
            while True:
                try:
                    self.position = await self.resume()
                    await self._publish_after(self.position, watch)
                except LogUnavailable as error:
                    self._seldom.warn(f"the relay cannot read the log: {error}")
                except (JetStreamError, nats.errors.Error, TimeoutError, OSError) as error:
                    lost_race = isinstance(error, APIError) and error.err_code == WRONG_LAST_SEQUENCE
                    # Another relay was faster, which is harmless: no warning, and the store is not suspected.
                    if not lost_race:
                        reason = str(error) or type(error).__name__
                        self._seldom.warn(f"the relay could not publish, and asks the stream where it stands: {reason}")
                        await self._stores.failed(subjects.LOG_STREAM, error)
                await asyncio.sleep(self._backoff.failed())

    async def resume(self) -> int:
        """Position to publish after: the stream's last sequence, once its last message is known to be the log's event."""
        await ensure_streams(self._js, self._settings)
        head = await self._log.head()
        first = max(1, head - REPUBLISH_EVENTS_MAX + 1)
        await ensure_stream(self._js, log_stream_config(self._settings, first))
        state = (await self._js.stream_info(subjects.LOG_STREAM)).state
        last: int = state.last_seq
        # An emptied stream has no message to compare, only its sequence.
        if state.messages:
            await self._compare(last)
        elif last > head:
            raise _diverged(f"the stream is at sequence {last}, the log only at position {head}")
        logger.info("the relay goes on after position %d", last)
        return last

    async def _compare(self, last: int) -> None:
        try:
            message = await self._js.get_msg(subjects.LOG_STREAM, seq=last)
        except NotFoundError:
            return  # another relay has gone on, and the stream's limit removed the message; the next `resume` compares
        found = await self._log.read(last - 1, 1)
        there = (message.headers or {}).get(Header.MSG_ID, "")
        if not found:
            raise _diverged(f"the stream has event {there} at {last}, the log has nothing there yet")
        if there != str(found[0].id):
            raise _diverged(f"at {last} the stream has event {there}, the log {found[0].id}")

    async def _publish_after(self, position: int, watch: HeadWatch) -> None:
        while True:
            batch = await self._log.read(position, IN_FLIGHT_MAX)
            if not batch:
                self._stores.works(subjects.LOG_STREAM)  # it holds the whole log
                if not await self._waited(position, watch):
                    return
                continue
            begun = perf_counter()
            await self._publish(batch)
            PUBLISH_SECONDS.observe(perf_counter() - begun)
            PUBLISHED.inc(len(batch))
            self.position = position = batch[-1].position
            self._backoff.worked()
            self._stores.works(subjects.LOG_STREAM)
            self._seldom.over()

    async def _waited(self, position: int, watch: HeadWatch) -> bool:
        """Waits for more to publish, or for the next check. False: the stream has lost events. Raises NotFoundError if the
        stream is gone, and errors of a bus that cannot be reached."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await watch.wait_beyond(position)
        except TimeoutError:
            return bool((await self._js.stream_info(subjects.LOG_STREAM)).state.last_seq >= position)
        return True

    async def _publish(self, batch: list[Event]) -> None:
        """Sends all, then awaits all acknowledgements. One wrong expectation fails every later message of the batch."""
        acks: list[asyncio.Future[PubAck]] = []
        try:
            async with asyncio.timeout(ACK_SECONDS_MAX):
                for event in batch:
                    acks.append(await self._js.publish_async(*_message(event), headers=_headers(event)))  # noqa: PERF401
                # In order, so that the error raised is the first one: the later messages fail only because of it.
                for event, waiting in zip(batch, acks, strict=True):
                    ack = await waiting
                    if ack.seq != event.position:
                        raise _diverged(f"the event of position {event.position} was stored at {ack.seq}")
        finally:
            for waiting in acks:
                if not waiting.cancel() and not waiting.cancelled():
                    waiting.exception()  # marks the error as retrieved: the first one was raised


def _message(event: Event) -> tuple[str, bytes]:
    body = encode_event(event)
    return subjects.log_subject(event.stream, event.type), body if len(body) <= MESSAGE_BYTES_MAX else b""


def _headers(event: Event) -> dict[str, str]:
    headers = {
        Header.EXPECTED_LAST_SEQUENCE.value: str(event.position - 1),
        Header.EXPECTED_STREAM.value: subjects.LOG_STREAM,
        Header.MSG_ID.value: str(event.id),
    }
    if event.trace:
        headers[HEADER_TRACE] = event.trace
    return headers


def _diverged(what: str) -> Diverged:
    return Diverged(
        f"the stream {subjects.LOG_STREAM} does not follow the log: {what}. Was one of them restored from a backup? The log "
        "is the truth: delete the stream, and it is made again from the log."
    )


async def build(settings: Settings, log: EventLog, bus: Client, clock: Clock) -> Relay:
    return Relay(log, bus, settings)


def main() -> None:
    run_service("relay", build)


if __name__ == "__main__":
    main()
