"""Sends requests with httpx, on the caller's event loop; each has a connection of its own, as in the blocking transport."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from math import inf

import httpx

from tenuto.client.blocking.transport import unreachable
from tenuto.client.errors import Interrupted, Unreachable
from tenuto.client.messages import AFTER_HEADER, CHUNK_BYTES, LINK_HEADER, MORE_HEADER, Request, Upload, onward, refusal
from tenuto.client.target import Address, Target
from tenuto.client.waiting import Deadline

LINE_BYTES_MAX = 64 << 20
"""Longest message of a live stream; an event has a megabyte at most."""


class AsyncResponse:
    def __init__(self, raw: httpx.Response) -> None:
        self._raw = raw
        self.more = raw.headers.get(MORE_HEADER) == "true"
        """True if there is more behind this answer."""
        self.onward = onward(raw.headers.get(LINK_HEADER))

    async def read(self) -> bytes:
        return await self._raw.aread()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._raw.aiter_bytes(CHUNK_BYTES):
            yield chunk

    async def lines(self, deadline: Deadline) -> AsyncIterator[bytes]:
        """Lines up to the end, or until the deadline. Raises TimeoutError if the deadline passes while no data comes."""
        rest = b""
        pieces = aiter(self._raw.aiter_bytes())
        while not deadline.over:
            async with asyncio.timeout(deadline.within(inf) if deadline.bounded else None):
                piece = await anext(pieces, b"")
            if not piece:
                return
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                raise httpx.RemoteProtocolError("a line of the stream is too long")
            for line in lines:
                yield line + b"\n"


class AsyncTransport:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._address = Address.of(target.url)
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        self._base = f"{'https' if self._address.secure else 'http'}://{host}"
        self._base += (f":{self._address.port}" if self._address.port else "") + self._address.prefix
        # Same as the blocking one: proxies of the environment are ignored, and no redirect is followed with the token.
        self._http = httpx.AsyncClient(
            limits=httpx.Limits(max_keepalive_connections=0), trust_env=False, follow_redirects=False, timeout=None
        )

    async def close(self) -> None:
        await self._http.aclose()

    @contextlib.asynccontextmanager
    async def open(self, request: Request) -> AsyncIterator[AsyncResponse]:
        """The answer, to be read from the connection as it comes. Raises ClientError."""
        upload = request.body
        headers = request.headers_for(self._target.token)
        content = _chunks(upload) if isinstance(upload, Upload) else upload
        try:
            async with self._http.stream(
                request.method, self._base + request.address, content=content, headers=headers, timeout=request.timeout_seconds
            ) as raw:
                if raw.status_code >= 400:
                    after = raw.headers.get(AFTER_HEADER)
                    raise refusal(self._target, raw.status_code, raw.reason_phrase, after, await raw.aread())
                yield AsyncResponse(raw)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            cause = _cause(error)
            raise Unreachable(unreachable(self._target, cause)) from error
        except (httpx.HTTPError, httpx.StreamError, TimeoutError) as error:
            silent = isinstance(error, (httpx.TimeoutException, TimeoutError))
            why = "it was silent for too long" if silent else str(error) or type(error).__name__
            raise Interrupted(f"The cluster at {self._target.url} broke off the connection ({why}): try again.") from error


async def _chunks(upload: Upload) -> AsyncIterator[bytes]:
    for chunk in upload.chunks():
        yield chunk


def _cause(error: BaseException) -> Exception:
    """The operating system's own word, behind those of httpx, httpcore and anyio."""
    found: Exception = ConnectionRefusedError()
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError):
            found = seen
        seen = seen.exceptions[0] if isinstance(seen, BaseExceptionGroup) else seen.__cause__ or seen.__context__
    return found
