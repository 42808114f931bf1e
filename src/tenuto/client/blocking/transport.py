"""Sends requests with the standard library only, because a command should start in a fraction of a second.

Each request has a connection of its own, closed when its answer was read: a program makes a few requests, and a kept connection
that the server has closed meanwhile would leave open whether a request that failed on it was carried out.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import urllib.parse
from collections.abc import Iterator

from tenuto.client.errors import Interrupted, Unreachable
from tenuto.client.messages import AFTER_HEADER, CHUNK_BYTES, LINK_HEADER, MORE_HEADER, Request, Upload, onward, refusal
from tenuto.client.target import Address, Target
from tenuto.client.waiting import Deadline

HERE = frozenset({"127.0.0.1", "::1", "localhost"})
"""Hosts at which a cluster that this machine can start would be."""


class Response:
    def __init__(self, raw: http.client.HTTPResponse, wire: socket.socket, timeout_seconds: float) -> None:
        self.raw = raw
        """A file of its body."""
        self.more = raw.headers.get(MORE_HEADER) == "true"
        """There is more behind this answer."""
        self.onward = onward(raw.headers.get(LINK_HEADER))
        self._wire, self._timeout_seconds = wire, timeout_seconds

    def read(self) -> bytes:
        return self.raw.read()

    def chunks(self) -> Iterator[bytes]:
        while chunk := self.raw.read(CHUNK_BYTES):
            yield chunk

    def lines(self, deadline: Deadline) -> Iterator[bytes]:
        """Lines up to the end, or until the deadline."""
        while not deadline.over:
            self._wire.settimeout(deadline.within(self._timeout_seconds))
            if not (line := self.raw.readline()):
                return
            yield line


class Transport:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._address = Address.of(target.url)

    def close(self) -> None:
        """Nothing is kept open."""

    @contextlib.contextmanager
    def open(self, request: Request) -> Iterator[Response]:
        """The answer, to be read from the connection as it comes. Raises ClientError."""
        body = request.body.chunks() if isinstance(request.body, Upload) else request.body
        path = self._address.prefix + request.address
        with contextlib.closing(self._connect(request.timeout_seconds)) as connection:
            wire = connection.sock
            assert wire is not None
            # A server that refuses before it has read everything closes the pipe; its answer says why.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(request.method, path, body=body, headers=request.headers_for(self._target.token))
            try:
                with connection.getresponse() as raw:
                    if raw.status >= 400:
                        raise refusal(self._target, raw.status, raw.reason, raw.getheader(AFTER_HEADER), raw.read())
                    yield Response(raw, wire, request.timeout_seconds)
            except (ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException) as error:
                why = "it was silent for too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
                raise Interrupted(f"The cluster at {self._target.url} broke off the connection ({why}): try again.") from error

    def _connect(self, timeout_seconds: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._address.secure else http.client.HTTPConnection
        connection = kind(self._address.host, self._address.port, timeout=timeout_seconds)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise Unreachable(unreachable(self._target, error)) from error
        return connection


def unreachable(target: Target, error: Exception) -> str:
    why = (
        "it does not answer"
        if isinstance(error, (ConnectionRefusedError, socket.timeout))
        else "it does not speak TLS there; is its address http://?"
        if isinstance(error, ssl.SSLError)
        else getattr(error, "strerror", None) or str(error)
    )
    here = (urllib.parse.urlsplit(target.url).hostname or "") in HERE
    remedy = "`tenuto up` starts the one on this machine" if here else "Check the address, and that this machine reaches it"
    return f"The cluster at {target.url} cannot be reached: {why}. {remedy}."
