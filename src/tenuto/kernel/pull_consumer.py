"""A durable consumer by one standing request for many messages, which arrive as long as there is room for them; one request per
message would cost a round trip and some hundred microseconds each.

The consumer has a connection of its own, so that a flood in one stream delays nothing else. A watch makes the consumer again if
the bus has lost its store, and sends the request again if the bus has forgotten it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError

from tenuto.kernel import bus as bus_module
from tenuto.kernel.backoff import Seldom
from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.eventlog import LogUnavailable
from tenuto.kernel.settings import Settings

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
"""Longest life of one request; then it is made anew."""
WATCH_SECONDS = 0.5
"""Pause between checks of the consumer: a wiped store, or a request that a killed server forgot, is noticed after this time."""
STATUS = "Status"
"""Header of a control message: the end of a request, or a sign of life."""

_LOST = (JetStreamError, nats.errors.Error, TimeoutError, OSError)

MESSAGE_BYTES = 1024
"""Size of a message beside its body: its subject and headers, and the objects that hold them."""

Take = Callable[[Msg], None]
"""Receiver of messages; it must acknowledge and `release` each. Must not raise or block."""
Establish = Callable[[Any], Awaitable[ConsumerConfig]]
"""Function of the JetStream context that makes sure that the stream exists, and returns the configuration of the consumer."""


class PulledConsumer:
    def __init__(
        self, settings: Settings, stream: str, name: str, establish: Establish, take: Take, messages_max: int, bytes_max: int
    ) -> None:
        """`messages_max`, and about `bytes_max`: most messages, and bytes, that are taken and not yet released."""
        self._settings, self._stream, self._name, self._establish, self._take = settings, stream, name, establish, take
        self._messages_max, self._bytes_max = messages_max, bytes_max
        self._seldom = Seldom(logger)
        self._taken = self._taken_bytes = 0
        self._wanted = 0
        """Messages of the standing request that have not arrived yet; 0: no request stands."""
        self._number = 0
        self._asked_at = 0.0
        self._bus: Client | None = None
        self._inbox = ""

    def release(self, message: Msg) -> None:
        """The receiver has finished with the message."""
        self._taken -= 1
        self._taken_bytes -= _size(message)
        self._ask_soon()

    async def run(self) -> None:
        """Runs until cancelled, through any loss of the bus."""
        self._bus = bus = await bus_module.connect(self._settings, self._name)
        try:
            self._inbox = bus.new_inbox()
            await bus.subscribe(f"{self._inbox}.*", cb=self._on_message, pending_msgs_limit=-1, pending_bytes_limit=-1)
            reconnects = bus.stats["reconnects"]
            while True:
                ready = await self._ensure(bus)
                # The server may have forgotten the request (it was killed, or the connection is a new one) and then never ends
                # it.
                overdue = asyncio.get_running_loop().time() - self._asked_at > REQUEST_SECONDS + WATCH_SECONDS
                if overdue or bus.stats["reconnects"] != reconnects:
                    reconnects, self._wanted = bus.stats["reconnects"], 0
                if ready:
                    await self._ask()
                await asyncio.sleep(WATCH_SECONDS)
        finally:
            self._bus = None
            await bus_module.close(bus)

    async def _ensure(self, bus: Client) -> bool:
        """Makes the consumer if it is missing; True if it exists."""
        js = bus.jetstream()
        try:
            try:
                info = await js.consumer_info(self._stream, self._name)
            except NotFoundError:
                await js.add_consumer(self._stream, await self._establish(js))
                self._wanted = 0
                logger.info("made the consumer %s", self._name)
            else:
                if self._number == 0:  # it may have been made by an earlier version
                    await self._adapt(js, info.config)
        except (*_LOST, *DATABASE_FAILED, LogUnavailable) as error:
            self._seldom.warn(f"{self._name} cannot check its consumer: {str(error) or type(error).__name__}")
            return False
        self._seldom.over(f"{self._name} has its consumer again")
        return True

    async def _adapt(self, js: Any, config: ConsumerConfig) -> None:
        wanted = await self._establish(js)
        if (config.max_ack_pending, config.ack_wait) != (wanted.max_ack_pending, wanted.ack_wait):
            config.max_ack_pending, config.ack_wait = wanted.max_ack_pending, wanted.ack_wait
            await js.add_consumer(self._stream, config)

    async def _ask(self) -> None:
        """Requests as many messages as there is room for, unless a request stands."""
        if self._wanted > 0 or not self._room_is_enough() or self._bus is None or not self._bus.is_connected:
            return
        room = self._messages_max - self._taken
        self._wanted, self._number, self._asked_at = room, self._number + 1, asyncio.get_running_loop().time()
        request = {"batch": room, "expires": int(REQUEST_SECONDS * 1e9), "max_bytes": self._bytes_max - self._taken_bytes}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        with suppress(*_LOST):
            await self._bus.publish(subject, json.dumps(request).encode(), reply=f"{self._inbox}.{self._number}")

    def _room_is_enough(self) -> bool:
        """True if more than half of the room is free: a request for each message would cost more than the message."""
        messages, size = self._messages_max - self._taken, self._bytes_max - self._taken_bytes
        return messages > self._messages_max // 2 and size > self._bytes_max // 2

    def _ask_soon(self) -> None:
        if self._wanted <= 0 and self._room_is_enough() and self._bus is not None:
            task = asyncio.ensure_future(self._ask())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # the watch asks again

    async def _on_message(self, message: Msg) -> None:
        headers = message.headers
        if headers is not None and STATUS in headers and not message.reply:
            await self._on_status(message, headers[STATUS])
            return
        self._wanted -= 1
        self._taken += 1
        self._taken_bytes += _size(message)
        self._take(message)
        if self._wanted <= 0:
            await self._ask()

    async def _on_status(self, message: Msg, status: str) -> None:
        """The standing request has ended: it expired, its bytes are used up, or its consumer is gone."""
        if status == "100" or not message.subject.endswith(f".{self._number}"):
            return
        self._wanted = 0
        if status in ("404", "408") or "MaxBytes" in ((message.headers or {}).get("Description") or ""):
            await self._ask()  # in other cases the consumer may be gone, so the watch asks


def _size(message: Msg) -> int:
    return MESSAGE_BYTES + len(message.data)
