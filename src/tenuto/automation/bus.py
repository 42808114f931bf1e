"""Reads the log from NATS, with an account that can do nothing else (`tenuto automation credentials`).

The account may hear what the relay publishes, and ask the log's stream for messages by their position (JetStream's direct get, in
batches). It makes no consumer: an account that may make one can have the server publish at any subject. A published message only
says that there is more, as the stream may refuse it; events are taken from the stream, whose sequence is the log's position, and
those that it lacks from REST. So the bus may lose anything, and no rule misses an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

import nats.errors
from faststream import AckPolicy
from faststream.nats import NatsBroker, NatsMessage
from faststream.security import SASLPlaintext
from nats.aio.client import Client
from nats.aio.msg import Msg

from tenuto.automation.window import Window, page
from tenuto.client import AsyncClient
from tenuto.client.errors import Away
from tenuto.kernel.bus import BusLinkLog
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects

logger = logging.getLogger(__name__)

BATCH_EVENTS = 500
BATCH_BYTES = 4 << 20
ANSWER_SECONDS_MAX = 2.0
"""Longest wait for one batch: then the rest is asked for again."""
LOOK_SECONDS = 5.0
"""Silence after which the log is asked by REST: the bus or the relay may be unreachable."""
_LOST = (nats.errors.Error, TimeoutError, OSError)


class BusSource:
    name = "nats"

    def __init__(self, settings: Settings, client: AsyncClient) -> None:
        """Source of events. `settings`: with address, user and password of the bus. `client`: for events that the stream does not
        have."""
        self._client = client
        self._more = asyncio.Event()
        self._link = BusLinkLog(settings, "automation")
        self._broker = NatsBroker(
            settings.nats_url,
            **self._link.options(),
            security=SASLPlaintext(settings.nats_user, settings.bus_password()),
            apply_types=False,
            logger=None,
        )
        subscriber = self._broker.subscriber(
            subjects.LOG_SUBJECTS, ack_policy=AckPolicy.MANUAL, decoder=_undecoded, no_reply=True
        )
        subscriber(self._heard)

    async def _heard(self, message: NatsMessage) -> None:
        self._more.set()

    async def run(self, window: Window) -> None:
        connecting = asyncio.create_task(self._broker.connect(), name="automation-connect")
        try:
            while not (await asyncio.wait({connecting}, timeout=LOOK_SECONDS))[0]:
                await self._from_rest(window)  # the bus is unreachable: events recorded meanwhile do not wait for it
            connection = connecting.result()
        except BaseException:
            await stop_task(connecting)
            raise
        self._link.made()
        try:
            # Where the server ends the connection at once, nothing is heard: the log is asked by REST, as in any other loss.
            with contextlib.suppress(*_LOST):
                await self._broker.start()
            while True:
                self._more.clear()
                try:
                    found = await self._batch(connection, window)
                except _LOST:
                    found = 0
                if found:
                    continue
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._more.wait()
                except TimeoutError:
                    await self._from_rest(window)
        finally:
            with contextlib.suppress(*_LOST):
                await connection.close()

    async def _batch(self, connection: Client, window: Window) -> int:
        """New events of one request."""
        inbox = connection.new_inbox()
        answers: asyncio.Queue[Msg] = asyncio.Queue(BATCH_EVENTS + 1)

        async def answered(message: Msg) -> None:
            answers.put_nowait(message)

        subscription = await connection.subscribe(inbox, cb=answered)
        try:
            wanted = {"seq": window.end + 1, "batch": BATCH_EVENTS, "max_bytes": BATCH_BYTES}
            await connection.publish(f"$JS.API.DIRECT.GET.{subjects.LOG_STREAM}", json.dumps(wanted).encode(), reply=inbox)
            found = 0
            while True:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    message = await answers.get()
                if "Nats-Sequence" not in (message.headers or {}):  # the end of the batch, or nothing there
                    return found
                if not await self._took(window, message):
                    return found
                found += 1
        finally:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def _took(self, window: Window, message: Msg) -> bool:
        """False: the stream lacks the events before it, and REST does not answer either."""
        told = json.loads(message.data)
        if told["position"] > window.end + 1 and not await self._from_rest(window, told["position"] - 1):
            return False
        window.add(told, len(message.data))
        return True

    async def _from_rest(self, window: Window, upto: int | None = None) -> bool:
        try:
            while events := await page(self._client, window.end, upto):
                for told in events:
                    window.add(told, len(json.dumps(told)))
        except Away:
            return False
        return True


async def _undecoded(message: NatsMessage) -> NatsMessage:
    return message
