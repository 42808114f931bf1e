"""Serves the REST door: one process, uvloop, a socket of our own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from tenuto.kernel.settings import SettingsError
from tenuto.services.gateway.rest.connections import BoundedProtocol

STOP_SECONDS_MAX = 3
"""Time for open answers to end when the service stops; live streams are told to end before."""
KEEPALIVE_SECONDS = 75
"""An idle connection of a client is kept so long: longer than its own next question usually takes."""
BACKLOG = 512


class PortTaken(SettingsError):
    """`str(error)` is one sentence for the operator: what, why, what to do."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Made with its protocol named, so that each answer leaves at once (TCP_NODELAY): otherwise every
    request on a kept connection waits 44 ms for a delayed acknowledgement. Raises PortTaken."""
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
                f"Port {port} on {host} is used by another program; stop it, or choose another port with TENUTO_REST_PORT."
            ) from error
        raise PortTaken(f"The REST door cannot listen on {host} port {port}: {error.strerror or error}.") from error
    return listener


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Server(uvicorn.Server):
    """Signals belong to the service's frame, not to uvicorn."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: FastAPI, listener: socket.socket, before_stop: Callable[[], None], certificate: tuple[str, str] | None = None
) -> None:
    """`certificate`: files of the certificate and its key; None: without TLS.

    Serves until cancelled; then calls `before_stop`, lets open answers end, and returns by CancelledError."""
    server = _Server(
        uvicorn.Config(
            app,
            http=BoundedProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            ssl_certfile=None if certificate is None else certificate[0],
            ssl_keyfile=None if certificate is None else certificate[1],
            timeout_keep_alive=KEEPALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS_MAX,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="rest")
    try:
        await asyncio.shield(serving)
    finally:
        before_stop()
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving
