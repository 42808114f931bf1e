"""A durable consumer through FastStream, for ingress and effects.

Four defaults of FastStream are turned off because they break our promises or cost too much: it acknowledges nothing (its default
terminates a message whose handler raised, which loses it), declares no stream, and does not decode the body. Messages are fetched
one by one, because a larger pull request waits for its batch to fill; a caller that wants batches collects the messages that have
arrived.

A watch makes the consumer again if the bus has lost its store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import nats.errors
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub
from faststream.security import BaseSecurity, SASLPlaintext
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, ConsumerInfo
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError, ServiceUnavailableError

from tenuto.kernel.backoff import Seldom
from tenuto.kernel.bus import BusLinkLog, SafeClient, close, security_of
from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.eventlog import LogUnavailable
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects

logger = logging.getLogger(__name__)

FETCH_SECONDS = 1.0
"""Duration of one pull request. After a server was killed, the request that it forgot delays the next message by at most this."""
WATCH_SECONDS = 1.0
"""Pause between checks of the consumer: a wiped store is noticed after this time."""

_LOST = (JetStreamError, nats.errors.Error, TimeoutError, OSError)

Handle = Callable[[Msg], Awaitable[None]]
"""Handler of a message; it must also acknowledge it. Must not raise, and should return at once."""
Fetch = Callable[..., Awaitable[list[Msg]]]
"""The `fetch` of nats-py's pull subscription."""
Establish = Callable[[Any], Awaitable[ConsumerConfig]]
"""Function of the JetStream context that makes sure that the stream exists, and returns the configuration of the consumer."""


class SafeBroker(NatsBroker):
    """Broker whose client sends no credentials to a server that offers no TLS if its URL says tls://."""

    async def _connect(self) -> Client:
        client = SafeClient()
        try:
            await client.connect(**self._connection_kwargs)
        except BaseException:
            await close(client)
            raise
        self.config.connect(client)
        return client


class DurableConsumer:
    def __init__(
        self,
        settings: Settings,
        name: str,
        stream: str,
        subject: str,
        establish: Establish,
        handle: Handle,
        description: str,
        filters: Sequence[str] = (),
    ) -> None:
        """`subject`: filter of the consumer; empty if its configuration has several (`filter_subjects`). `filters`: these; a
        consumer that an earlier version made with others gets them."""
        self._name, self._stream, self._establish, self._handle = name, stream, establish, handle
        self._filters = list(filters)
        self._connection: Client | None = None
        self._seldom = Seldom(logger)
        self._link = BusLinkLog(settings, name)
        self.broker = SafeBroker(
            settings.nats_url,
            **self._link.options(),
            security=_security(settings),
            apply_types=False,
            logger=None,
        )
        self._subscriber = self.broker.subscriber(
            subject or f"{stream}.{name}",
            stream=JStream(stream, declare=False),
            durable=name,
            inbox_prefix=f"{subjects.inbox(settings.nats_user) if settings.nats_user else '_INBOX'}.".encode(),
            pull_sub=PullSub(batch_size=1, timeout=FETCH_SECONDS),
            ack_policy=AckPolicy.MANUAL,
            decoder=_undecoded,
            no_reply=True,
            description=description,
        )
        self._subscriber(self._receive)

    async def _receive(self, message: NatsMessage) -> None:
        await self._handle(message.raw_message)

    async def run(self) -> None:
        """Runs until cancelled, through any loss of the bus."""
        self._connection = await self.broker.connect()
        self._link.made()
        watch: asyncio.Task[None] | None = None
        try:
            while not await self._ensure():  # noqa: ASYNC110 - polls the server
                await asyncio.sleep(WATCH_SECONDS)
            watch = asyncio.create_task(self._watch(), name=f"{self._name}-watch")
            while True:
                try:
                    await self.broker.start()
                    self._pace()
                    break
                except _LOST as error:
                    self._seldom.warn(f"{self._name} cannot subscribe, trying again: {str(error) or type(error).__name__}")
                    await asyncio.sleep(WATCH_SECONDS)
            await watch
        finally:
            await stop_task(watch)
            self._connection = None
            await _stop_broker(self.broker)

    async def _adapt(self, js: Any, config: ConsumerConfig) -> None:
        if self._filters and {config.filter_subject, *(config.filter_subjects or ())} - {None, ""} != set(self._filters):
            config.filter_subject, config.filter_subjects = None, self._filters
            await js.add_consumer(self._stream, config)
            logger.info("the consumer %s is sent only %s now", self._name, ", ".join(self._filters))

    async def info(self) -> ConsumerInfo | None:
        """The server's information about the consumer. None: `run` is not active. Raises nats-py's errors."""
        if self._connection is None:
            return None
        info: ConsumerInfo = await self._connection.jetstream().consumer_info(self._stream, self._name)
        return info

    def _pace(self) -> None:
        """Slows FastStream down: it asks again at once after an answer that no server has the consumer, and without end if the
        consumer is deleted."""
        subscription = self._subscriber.subscription
        if subscription is not None:
            subscription.fetch = paced(subscription.fetch)  # type: ignore[method-assign,assignment]

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self._ensure()

    async def _ensure(self) -> bool:
        js = self.broker.config.connection_state.stream
        try:
            try:
                info = await js.consumer_info(self._stream, self._name)
            except NotFoundError:
                config = await self._establish(js)
                await js.add_consumer(self._stream, config)
                logger.info("made the consumer %s", self._name)
            else:
                await self._adapt(js, info.config)
        except (*_LOST, *DATABASE_FAILED, LogUnavailable) as error:
            self._seldom.warn(f"{self._name} cannot check its consumer: {str(error) or type(error).__name__}")
            return False
        self._seldom.over(f"{self._name} has its consumer again")
        return True


def paced(fetch: Fetch) -> Fetch:
    """The same function, with a pause of WATCH_SECONDS before it raises that the consumer or the connection is gone."""

    async def fetched(*args: Any, **options: Any) -> list[Msg]:
        try:
            return await fetch(*args, **options)
        except (ServiceUnavailableError, nats.errors.ConnectionClosedError):
            await asyncio.sleep(WATCH_SECONDS)
            raise

    return fetched


def _security(settings: Settings) -> BaseSecurity | None:
    """Credentials, and how the server's certificate is checked, as `kernel/bus.py` does. Raises SettingsError."""
    context = security_of(settings).get("tls")
    if settings.nats_user:
        return SASLPlaintext(settings.nats_user, settings.bus_password(), ssl_context=context, use_ssl=context is not None)
    return BaseSecurity(ssl_context=context, use_ssl=True) if context is not None else None


async def _undecoded(message: NatsMessage) -> NatsMessage:
    return message


async def _stop_broker(broker: NatsBroker) -> None:
    """Stops a broker without draining its connection, as its own `stop` would: draining waits for a server that may be gone.

    Subscribers stop first: a pull from a closed connection fails before it has waited for anything, so FastStream's endless task
    would ask again and again and never let the event loop go on.
    """
    for subscriber in broker.subscribers:
        with suppress(*_LOST):
            await subscriber.stop()
    connection = broker._connection
    if connection is not None and connection.is_connected:
        await broker.stop()
    elif connection is not None:
        await connection.close()
