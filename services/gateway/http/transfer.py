"""Transfer of answers: with an `ETag`, so that a client that asks again is told that nothing changed, and compressed; and
HEAD."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.kernel.tasks import stop_task

COMPRESSED_BYTES_MIN = 1_400
"""Least size of a body that is compressed: one that fits into one packet travels no faster for being smaller."""
IN_THREAD_BYTES_MIN = 64 << 10
"""Least size that is compressed off the event loop: a megabyte takes some ten milliseconds."""
LEVEL = 5
LARGE_LEVEL = 1
"""Level of compression off the loop: five megabytes of numbers take 50 ms in place of 220 and are a fifth longer; the time is
what counts while a user waits for a picture."""
_GZIP_BITS = 31
COMPRESSIBLE = frozenset({"application/json", "application/problem+json", "text/html"})
"""Media types that are compressed. Live streams are not, as each event must leave at once; checkpoints and tables of numbers
shrink little."""
TAGGED = frozenset({"application/json", "text/html"})
_OF_A_BODY = ("content-length", "content-type", "content-encoding")


class Transfer:
    """Middleware for GET. It is inside the gate, so that it reveals nothing that the user may not see."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        known = headers.get("if-none-match", "")
        await self._app(scope, receive, _Answer(send, known, takes_gzip(headers.get("accept-encoding", ""))))


def head(app: ASGIApp) -> ASGIApp:
    """Answers HEAD with the headers that GET would send. The work ends there, as a body may be gigabytes, or endless."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        begun: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def begin(message: Message) -> None:
            if not begun.done():
                begun.set_result(message)
            await asyncio.Event().wait()  # until the work is ended

        async def work() -> None:
            await app({**scope, "method": "GET"}, receive, begin)

        working = asyncio.create_task(work(), name="head")
        try:
            either: set[asyncio.Future[Any]] = {working, begun}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not begun.done():
                working.result()
                return
            await send(begun.result())
            await send({"type": "http.response.body", "body": b""})
        finally:
            begun.cancel()
            await stop_task(working)

    return answer


class _Answer:
    """Holds the beginning of an answer back until it has seen some of its body."""

    def __init__(self, send: Send, known: str, gzip: bool) -> None:
        self._send, self._known, self._gzip = send, known, gzip
        self._start: Message | None = None
        self._compressor: zlib._Compress | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if _kind(message) in COMPRESSIBLE:
                self._start = message
                return
        elif message["type"] == "http.response.body":
            if self._start is not None:
                start, self._start = self._start, None
                await self._begin(start, message)
                return
            if self._compressor is not None:
                message = await self._piece(self._compressor, message)
        await self._send(message)

    async def _begin(self, start: Message, first: Message) -> None:
        headers = MutableHeaders(raw=start["headers"])
        body, whole = first.get("body", b""), not first.get("more_body", False)
        headers.add_vary_header("Accept-Encoding")
        # A body in pieces is under way before its end is known, so it has no tag.
        if whole and start["status"] == 200 and _kind(start) in TAGGED:
            tag = await asyncio.to_thread(_tag, body) if len(body) >= IN_THREAD_BYTES_MIN else _tag(body)
            headers["ETag"] = tag
            headers.setdefault("Cache-Control", "private, no-cache")
            if matches(self._known, tag):
                for name in _OF_A_BODY:
                    del headers[name]
                await self._send({**start, "status": 304})
                await self._send({"type": "http.response.body", "body": b""})
                return
        if self._gzip and "content-encoding" not in headers and (not whole or len(body) >= COMPRESSED_BYTES_MIN):
            level = LEVEL if whole and len(body) < IN_THREAD_BYTES_MIN else LARGE_LEVEL
            self._compressor = zlib.compressobj(level, wbits=_GZIP_BITS)
            first = await self._piece(self._compressor, first)
            headers["Content-Encoding"] = "gzip"
            del headers["content-length"]
            if whole:
                headers["Content-Length"] = str(len(first["body"]))
        await self._send(start)
        await self._send(first)

    async def _piece(self, compressor: zlib._Compress, message: Message) -> Message:
        body, last = message.get("body", b""), not message.get("more_body", False)

        def compress() -> bytes:
            return compressor.compress(body) + (compressor.flush() if last else b"")

        done = await asyncio.to_thread(compress) if len(body) >= IN_THREAD_BYTES_MIN else compress()
        return {**message, "body": done}


def _tag(body: bytes) -> str:
    return f'W/"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


def _kind(start: Message) -> str:
    return Headers(raw=start["headers"]).get("content-type", "").partition(";")[0].strip().lower()


def takes_gzip(accepted: str) -> bool:
    """True if `Accept-Encoding` (RFC 9110) names gzip, or any encoding, and not with weight 0."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, _, parameters = part.partition(";")
        weight = parameters.strip().removeprefix("q=").strip()
        try:
            weights[name.strip()] = float(weight) if weight else 1.0
        except ValueError:
            weights[name.strip()] = 0.0
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def matches(known: str, tag: str) -> bool:
    """True if `If-None-Match`, which may name several tags, includes this one; compared weakly (RFC 9110)."""
    bare = tag.removeprefix("W/")
    return known.strip() == "*" or any(item.strip().removeprefix("W/") == bare for item in known.split(","))
