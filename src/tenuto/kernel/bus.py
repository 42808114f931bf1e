"""The bus: one way to connect to NATS, and the streams that Tenuto needs there."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

import nats
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from tenuto.kernel.backoff import Seldom
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects

logger = logging.getLogger(__name__)

AUTHORIZATION_VIOLATION = "authorization violation"
"""Words of the server to whom it does not know."""
PING_SECONDS = 1.0
PINGS_OUTSTANDING_MAX = 2
"""Unanswered pings before a link counts as cut: with one ping a second, that is noticed within about three to five seconds."""
RECONNECT_SECONDS = 0.2
"""Pause between attempts to connect: the bus is local or near, and a service without it is only slower."""
CONNECT_SECONDS_MAX = 5.0
"""Longest wait for each step of a connection. A server under load needs seconds for a TLS handshake: a client that gave up
sooner would start over without end, and add to the load."""
CLOSE_SECONDS_MAX = 2.0
"""Longest wait for a connection to close. A server that is stopped, or a peer that ends TLS without a word, would hold up the end
of the process for ever; what has to arrive was acknowledged before."""
PENDING_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes that a client holds for sending while the link is cut. Whatever must not be lost is kept elsewhere as well."""
WRONG_LAST_SEQUENCE = 10071
"""JetStream's error code for an unexpected last sequence: another relay was first, or the stream is at another position than
assumed."""
DUPLICATE_WINDOW_SECONDS = 10.0
"""Time for which the log stream remembers message ids. The expected sequence already keeps duplicates out; a longer memory
would only cost server memory."""


class SafeClient(Client):
    """Sends credentials over TLS wherever its URL says tls://. nats-py by itself leaves that to the server's first message, which
    anybody on the way can change."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        server = self._current_server
        if initial_connection and server is not None and server.uri.scheme == "tls":
            if not (info.get("tls_required") or info.get("tls_available")):
                raise nats.errors.Error("nats: the server offers no TLS, so no credentials are sent")
            info["tls_required"] = True  # by this side, where the server leaves it to the client: nats-py goes by this alone
        await super()._process_info(info, initial_connection)


def security_of(settings: Settings) -> dict[str, Any]:
    """Options by which the server's certificate is checked. Raises SettingsError."""
    if not settings.nats_ca_file:
        return {}
    try:
        return {"tls": ssl.create_default_context(cafile=settings.nats_ca_file)}
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"TENUTO_NATS_CA_FILE is {settings.nats_ca_file}, which cannot be used: {error}.") from None


async def connect(settings: Settings, name: str = "tenuto", on_refused: Callable[[], None] | None = None) -> Client:
    """A client that reconnects for ever, and logs once that the link is lost and once that it is back.

    Waits for the first connection as long as it takes. `on_refused` is called whenever the server refuses the user.
    """
    client, link = SafeClient(), BusLinkLog(settings, name, on_refused)
    options = link.options() | security_of(settings)
    if settings.nats_user:
        options |= {"user": settings.nats_user, "password": settings.bus_password()}
    await client.connect(settings.nats_url, **options)
    link.made()
    return client


class BusLinkLog:
    """Log messages of a client about its link to the server: once that it is lost, once that it is back, and errors that the
    server reports meanwhile. A client whose request was refused often learns of it in no other way."""

    def __init__(self, settings: Settings, name: str, on_refused: Callable[[], None] | None = None) -> None:
        self._settings, self._name, self._on_refused = settings, name, on_refused
        self._away = False
        self._seldom = Seldom(logger)

    def made(self) -> None:
        """The client is connected. Callers of `connect` report it here, because nats-py calls back only for later connections,
        and the first one may have taken several attempts."""
        if self._away:
            self._away = False
            logger.info("%s has its link to NATS again", self._name)

    async def _on_error(self, error: Exception) -> None:
        name = self._name
        if self._on_refused is not None and AUTHORIZATION_VIOLATION in str(error).lower():
            self._on_refused()
        if isinstance(error, nats.errors.SlowConsumerError):
            logger.debug("%s: messages dropped on %s", name, error.subject)  # the feed sees the gap and reads it from the log
        elif isinstance(error, OSError | nats.errors.UnexpectedEOF | nats.errors.StaleConnectionError):
            if not self._away:
                self._away = True
                reason = str(error) or type(error).__name__
                logger.warning("%s cannot reach NATS at %s: %s. It keeps trying.", name, self._settings.nats_url, reason)
        elif isinstance(error, APIError) and error.err_code == WRONG_LAST_SEQUENCE:
            logger.debug("%s: %s", name, error)  # repeated for each later message of a batch; the sender gets the same error
        elif not self._away:
            self._seldom.warn(f"{name}: the bus reports: {str(error) or type(error).__name__}")

    async def _on_reconnected(self) -> None:
        self._away = True  # even if the loss was not logged
        self.made()

    def options(self) -> dict[str, Any]:
        """Options of all our clients, except the server's address and the credentials."""
        user = self._settings.nats_user
        return {
            **({"inbox_prefix": subjects.inbox(user)} if user else {}),
            "name": self._name,
            "error_cb": self._on_error,
            "reconnected_cb": self._on_reconnected,
            "allow_reconnect": True,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_SECONDS,
            "connect_timeout": CONNECT_SECONDS_MAX,
            "ping_interval": PING_SECONDS,
            "max_outstanding_pings": PINGS_OUTSTANDING_MAX,
            "pending_size": PENDING_BYTES_MAX,
        }


async def close(client: Client) -> None:
    """Closes, and waits no longer than CLOSE_SECONDS_MAX for a server that takes nothing more."""
    closing = asyncio.create_task(client.close())
    # Not `asyncio.timeout`: the client catches the first cancellation where it ends an attempt to connect.
    try:
        await asyncio.wait({closing}, timeout=CLOSE_SECONDS_MAX)
    finally:
        await stop_task(closing)


def log_stream_config(settings: Settings, first_position: int = 1) -> StreamConfig:
    return StreamConfig(
        name=subjects.LOG_STREAM,
        subjects=[subjects.LOG_SUBJECTS],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        storage=StorageType.FILE,
        max_bytes=settings.log_stream_bytes_max,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
        first_seq=first_position if first_position > 1 else None,
        allow_direct=True,
        deny_delete=True,
    )


def ingress_stream_config(settings: Settings) -> StreamConfig:
    """Configuration of the ingress stream. A full stream refuses new reports, so that agents keep them in their spools;
    reports leave the stream when they are acknowledged."""
    return StreamConfig(
        name=subjects.INGRESS_STREAM,
        subjects=[subjects.INGRESS_SUBJECTS],
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        storage=StorageType.FILE,
        max_bytes=settings.ingress_stream_bytes_max,
        duplicate_window=DUPLICATE_WINDOW_SECONDS,
    )


async def ensure_stream(js: JetStreamContext, config: StreamConfig) -> bool:
    """Makes the stream if it does not exist; True if it was made. Of an existing one only the size limit is changed."""
    assert config.name
    try:
        info = await js.stream_info(config.name)
    except NotFoundError:
        await js.add_stream(config)
        logger.info("made the stream %s", config.name)
        return True
    if info.config.max_bytes != config.max_bytes:
        info.config.max_bytes = config.max_bytes
        await js.update_stream(info.config)
    return False


async def ensure_streams(js: JetStreamContext, settings: Settings) -> None:
    """Makes the ingress stream. The relay makes the log stream, because only it knows the first position to publish."""
    await ensure_stream(js, ingress_stream_config(settings))
