"""Serves HTTP within a service's own event loop, on a socket of our own: the REST door, and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from tenuto.kernel.http_connections import BoundedProtocol
from tenuto.kernel.settings import SettingsError

STOP_SECONDS_MAX = 3
"""Time for open answers to end when the service stops; live streams are told to end before."""
KEEPALIVE_SECONDS = 75
"""An idle connection of a client is kept so long: longer than its own next question usually takes."""
BACKLOG = 512


class PortTaken(SettingsError):
    """`str(error)` is one sentence for the operator: what, why, what to do."""


def bind(host: str, port: int, setting: str = "TENUTO_REST_PORT") -> socket.socket:
    """A listening socket; `setting` is where the operator chose its port. Made with its protocol named, so that each answer
    leaves at once (TCP_NODELAY): otherwise every request on a kept connection waits 44 ms for a delayed acknowledgement. Raises
    PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"Port {port} on {host} is used by another program; stop it, or choose another port with {setting}."
            ) from error
        raise PortTaken(f"{setting}: {host} port {port} cannot be listened on: {error.strerror or error}.") from error
    return listener


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _GivenUp(logging.Filter):
    """Keeps out the traceback of each request that is given up when the server stops: uvicorn says in one line how many these
    are, and a client with a thousand half-sent requests would write some fifty thousand lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


logging.getLogger("uvicorn.error").addFilter(_GivenUp())


class _Server(uvicorn.Server):
    """Signals belong to the service's frame, not to uvicorn."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    before_stop: Callable[[], None],
    certificate: tuple[str, str] | None = None,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    stop_seconds_max: int = STOP_SECONDS_MAX,
) -> None:
    """`certificate`: files of the certificate and its key; None: without TLS.

    Serves until cancelled; then calls `before_stop`, lets open answers end, and returns by CancelledError."""
    server = _Server(
        uvicorn.Config(
            app,
            http=protocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            ssl_certfile=None if certificate is None else certificate[0],
            ssl_keyfile=None if certificate is None else certificate[1],
            timeout_keep_alive=KEEPALIVE_SECONDS,
            timeout_graceful_shutdown=stop_seconds_max,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        await asyncio.shield(serving)
    finally:
        before_stop()
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving
